"""Measures whether a target is computed faster by OpenVINO's kernels than by ONNX Runtime's."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.tree import TokenTree
from edgedec.errors import EdgedecError
from edgedec.hardware.machine import memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort.opening import default_threads, model_file
from edgedec.runtimes.onnx.known import KnownOutcomes
from edgedec.runtimes.onnx.model import MODEL_FILE, OnnxModel
from edgedec.runtimes.onnx.openvino.places import DEVICE, version
from edgedec.runtimes.onnx.padding import LARGE_BYTES

_log = logging.getLogger("edgedec")
_KIND = "kernels"
_OURS = "onnxruntime"
# OpenVINO takes more memory, and longer to load: it must gain this much.
_GAIN = 1.1
# Bytes free for each byte of weights, below which nothing is tried.
_ROOM = 4
# Passes of a text that speculation serves badly, and well.
_WIDTHS = (1, 4, 8)
_PROMPT = 64
_REPEATS = 4


def quickest(path: Path, options: LoadOptions) -> str | None:
    """Return OpenVINO's device if it computes this target faster, which is measured once.

    None of a small model, where too little memory is free to load it there, and where OpenVINO
    cannot run it.

    Args:
        path: ``model.onnx``, or its folder.
        options: that name no device.

    Raises:
        BundleError: the file is missing, damaged, or not one of edgedec's.

    """
    if options.own:
        return None
    file = model_file(path, MODEL_FILE)
    stored = read_model_file(file)
    free = memory().free
    small = stored.weight_bytes < LARGE_BYTES
    if small or (free is not None and free < _ROOM * stored.weight_bytes):
        return None
    threads = options.threads or default_threads(stored.weight_bytes)
    known = KnownOutcomes(_KIND, file, stored, threads, version())
    found = known.get((_OURS, DEVICE), lambda: _faster(file, threads))
    return DEVICE if found == DEVICE else None


def _faster(file: Path, threads: int) -> str:
    from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

    _log.warning("measuring which kernels compute %s faster here, once: some seconds", file.parent)
    try:
        # One after the other, so that not both are in memory.
        theirs = _seconds(lambda: OpenVinoModel.compile(file, threads=threads))
        ours = _seconds(lambda: OnnxModel.load(file, threads=threads))
    except EdgedecError:
        return _OURS
    return DEVICE if theirs * _GAIN < ours else _OURS


def _seconds(load: Callable[[], OnnxModel]) -> float:
    """Return the time of one pass of each width, at its best."""
    model = load()
    try:
        session = model.open(min(model.info.max_context, _PROMPT + max(_WIDTHS)))
        session.prefill(range(session.capacity - max(_WIDTHS)))
        length, total = session.length, 0.0
        for width in _WIDTHS:
            times = []
            for _ in range(_REPEATS):
                began = time.perf_counter()
                session.forward(TokenTree.chain(range(width)))
                times.append(time.perf_counter() - began)
                session.rollback(length)
            total += min(times)
        session.close()
        return total
    finally:
        model.close()
