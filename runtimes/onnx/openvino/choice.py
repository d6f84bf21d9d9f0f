"""Measures whether a target is computed faster by OpenVINO's kernels than by ONNX Runtime's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import onnxruntime as ort

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.policy import CostCurve, calibrate
from edgedec.errors import EdgedecError, RuntimeUnavailable
from edgedec.hardware.machine import memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.opening import default_threads, model_file
from edgedec.runtimes._ort.saved import fingerprint, known_outcomes
from edgedec.runtimes.onnx.model import MODEL_FILE, OnnxModel
from edgedec.runtimes.onnx.openvino.importing import model_class
from edgedec.runtimes.onnx.openvino.places import DEVICE, version
from edgedec.runtimes.onnx.padding import LARGE_BYTES

_log = logging.getLogger("edgedec")
_KIND = "kernels"
_OURS = "onnxruntime"
# Without a draft model: OpenVINO loads more slowly, so it must be faster by the first factor over
# all widths, and may be slower by the second at most at one row, that of plain decoding.
_GAIN, _MOST_LOSS = 1.1, 1.2
# With one: factors for the speed that the policy expects, beyond what measurements err by, and for
# one row, which is all that a text of which nothing is drafted computes.
_GAIN_DRAFTED, _MOST_LOSS_DRAFTED = 1.03, 1.5
# Free bytes per byte of weights that are needed to measure.
_ROOM = 4
# Widths of passes, from plain rounds to long drafts; the last one only shows how costs go on.
_WIDTHS = (1, 4, 8, 17)
_SUMMED = _WIDTHS[:3]
_CONTEXT = 64
# Seconds after which no further sweep over the widths begins.
_BUDGET_S = 2.0


def quickest(path: Path, options: LoadOptions, draft: Path | None = None) -> str | None:
    """Return OpenVINO's device if it computes this target's rounds faster, measured once.

    None for a small model, if OpenVINO cannot run the model or would lose its batch invariance,
    and, until it is measured, if too little memory is free to load it.

    Args:
        path: ``model.onnx``, or its folder.
        options: load options that name no device.
        draft: the draft model's ``model.onnx``, or its folder, if the pair has one: then the
            kernels are compared by the speed that the policy expects with it.

    Raises:
        BundleError: the file is missing, damaged, or not one of edgedec's.

    """
    if options.own:
        return None
    file = model_file(path, MODEL_FILE)
    stored = read_model_file(file)
    if stored.weight_bytes < LARGE_BYTES:
        return None
    theirs = version()
    if theirs is None:
        return None
    threads = options.threads or default_threads(stored.weight_bytes)
    kernels = f"{theirs}, onnxruntime {ort.__version__}"
    if draft is not None:
        draft = model_file(draft, MODEL_FILE)
        try:
            kernels += f", draft {fingerprint(draft)}"
        except (EdgedecError, OSError):  # reported where it is loaded
            draft = None
    known = known_outcomes(_KIND, file, stored, threads, kernels)

    def search() -> str:
        free = memory().free
        if free is not None and free < _ROOM * stored.weight_bytes:
            raise RuntimeUnavailable("too little memory is free")
        return _faster(file, threads, draft)

    try:
        found = known.get((_OURS, DEVICE), search)
    except EdgedecError:  # not measured; a later load tries again
        return None
    return DEVICE if found == DEVICE else None


def _faster(file: Path, threads: int, draft: Path | None) -> str:
    _log.warning("measuring which kernels compute %s faster here, once: some seconds", file.parent)
    # First, since a draft that does not load should not cost a compilation each time.
    draft_s = None if draft is None else _costs(_draft(draft), widths=(1,)).at(1)
    try:
        model = model_class().compile(file, threads=threads)
    except RuntimeUnavailable:
        return _OURS
    # One after the other, so that not both are in memory.
    invariant, theirs = model.capabilities.batch_invariant, _costs(model)
    other = OnnxModel.load(file, threads=threads)
    loses_exactness = other.capabilities.batch_invariant and not invariant
    ours = _costs(other)
    return DEVICE if gains(theirs, ours, draft_s) and not loses_exactness else _OURS


def gains(theirs: CostCurve, ours: CostCurve, draft_s: float | None) -> bool:
    """Return whether OpenVINO's kernels are worth using.

    Args:
        theirs, ours: seconds of a pass by its rows, on OpenVINO and on ONNX Runtime.
        draft_s: seconds of the draft model's pass over one row; None without a draft model.

    """
    # Small targets measure nothing.
    from edgedec.decoding.policy.drafter_estimate import expected_rate

    loss = theirs.at(1) / ours.at(1)
    if draft_s is None:
        summed = (sum(curve.at(rows) for rows in _SUMMED) for curve in (theirs, ours))
        theirs_s, ours_s = summed
        return theirs_s * _GAIN < ours_s and loss < _MOST_LOSS
    faster = expected_rate(theirs, draft_s) > _GAIN_DRAFTED * expected_rate(ours, draft_s)
    return faster and loss < _MOST_LOSS_DRAFTED


def _draft(file: Path) -> OnnxModel:
    """Load the draft model as it is loaded beside a target: on ONNX Runtime, without padding."""
    return OnnxModel.load(file, batch_invariant=False)


def _costs(model: OnnxModel, widths: Sequence[int] = _WIDTHS) -> CostCurve:
    """Return the seconds of passes by their rows; closes the model."""
    with closing(model), closing(model.open(min(model.info.max_context, _CONTEXT))) as session:
        return calibrate(session, widths, _BUDGET_S)
