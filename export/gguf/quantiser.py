"""llama.cpp's quantiser; runs in a child process."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import llama_cpp
import numpy as np


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Quantise a GGUF file.

    Args:
        request: ``source`` and ``out``, files; ``ftype``, llama.cpp's number of the mixture;
            ``threads``; ``buffer_bytes``, rows kept in memory; ``importance``, an ``.npz`` of
            weights by tensor name, or None.

    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = request["ftype"]
    params.nthread = request["threads"]
    if hasattr(params, "max_buf_size"):
        params.max_buf_size = request["buffer_bytes"]
    kept = _importance(request.get("importance"))
    if kept is not None:
        params.imatrix = kept[0]
    code = llama_cpp.llama_model_quantize(
        os.fsencode(request["source"]), os.fsencode(request["out"]), ctypes.byref(params)
    )
    if code:
        raise RuntimeError(f"llama_model_quantize returned {code}")
    return {"code": code}


def _importance(file: str | None) -> Any:
    """Return the quantiser's C array and the arrays it points to; None without a file."""
    if file is None:
        return None
    with np.load(file) as stored:
        arrays = {name: np.ascontiguousarray(stored[name], np.float32) for name in stored.files}
    rows = (llama_cpp.llama_model_imatrix_data * (len(arrays) + 1))()
    pointer = ctypes.POINTER(ctypes.c_float)
    for row, (name, values) in zip(rows, arrays.items(), strict=False):
        row.name = name.encode()
        row.data = values.ctypes.data_as(pointer)
        row.size = values.size
    # The last row stays empty: a missing name ends the list.
    return rows, arrays
