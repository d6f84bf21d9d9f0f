"""Measures whether a target is computed faster by OpenVINO's kernels than by ONNX Runtime's."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import onnxruntime as ort

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.policy import calibrate
from edgedec.errors import EdgedecError, RuntimeUnavailable
from edgedec.hardware.machine import memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.opening import default_threads, model_file
from edgedec.runtimes.onnx.known import KnownOutcomes
from edgedec.runtimes.onnx.model import MODEL_FILE, OnnxModel
from edgedec.runtimes.onnx.openvino.importing import model_class
from edgedec.runtimes.onnx.openvino.places import DEVICE, version
from edgedec.runtimes.onnx.padding import LARGE_BYTES

_log = logging.getLogger("edgedec")
_KIND = "kernels"
_OURS = "onnxruntime"
# OpenVINO takes more memory and loads more slowly, so it must be faster by the first factor over
# all widths, and may be slower by the second at most at the first width, that of plain decoding.
_GAIN, _MOST_LOSS = 1.1, 1.2
# Free bytes per byte of weights that are needed to measure.
_ROOM = 4
# Widths of passes, from plain rounds to long drafts.
_WIDTHS = (1, 4, 8)
_CONTEXT = 64
# Seconds after which no further sweep over the widths begins.
_BUDGET_S = 2.0


def quickest(path: Path, options: LoadOptions) -> str | None:
    """Return OpenVINO's device if it computes this target's rounds faster, measured once.

    None for a small model, if OpenVINO cannot run the model or would lose its batch invariance,
    and, until it is measured, if too little memory is free to load it.

    Args:
        path: ``model.onnx``, or its folder.
        options: load options that name no device.

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
    known = KnownOutcomes(_KIND, file, stored, threads, kernels)

    def search() -> str:
        free = memory().free
        if free is not None and free < _ROOM * stored.weight_bytes:
            raise RuntimeUnavailable("too little memory is free")
        return _faster(file, threads)

    try:
        found = known.get((_OURS, DEVICE), search)
    except EdgedecError:  # not measured; a later load tries again
        return None
    return DEVICE if found == DEVICE else None


def _faster(file: Path, threads: int) -> str:
    _log.warning("measuring which kernels compute %s faster here, once: some seconds", file.parent)
    try:
        model = model_class().compile(file, threads=threads)
    except RuntimeUnavailable:
        return _OURS
    # One after the other, so that not both are in memory.
    invariant, theirs = model.capabilities.batch_invariant, _seconds(model)
    other = OnnxModel.load(file, threads=threads)
    ours = _seconds(other)
    gains = sum(theirs) * _GAIN < sum(ours) and theirs[0] < _MOST_LOSS * ours[0]
    loses_exactness = other.capabilities.batch_invariant and not invariant
    return DEVICE if gains and not loses_exactness else _OURS


def _seconds(model: OnnxModel) -> list[float]:
    """Return the time of a pass of each width, in seconds; closes the model."""
    with closing(model), closing(model.open(min(model.info.max_context, _CONTEXT))) as session:
        curve = calibrate(session, _WIDTHS, _BUDGET_S)
    return [curve.at(width) for width in _WIDTHS]
