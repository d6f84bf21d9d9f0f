"""Runs in the child process of `check`: bounds its memory, then opens a file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Refusal
from edgedec.runtimes.llamacpp import tiles
from edgedec.runtimes.llamacpp.taps import Taps

# In addition to the file: Python, the libraries, and a context of few tokens.
SPARE_BYTES = 4 << 30
_CARDS = (1, 2)  # ggml_backend_dev_type: with memory of its own, and with the machine's


def main(task: Mapping[str, Any]) -> None:
    """Open one file; if that fails, llama.cpp's standard error says why."""
    path = Path(task["path"])
    try:
        import llama_cpp
    except Exception as error:  # any error of a broken installation
        raise Refusal("unavailable", str(error)) from None
    if not has_card(llama_cpp):
        bound_memory(path)
    if not _decodes(path, task["layers"], reorder=task["reorder"]):
        raise SystemExit


def has_card(llama_cpp: Any) -> bool:
    """Return whether there is a graphics processor.

    Every build with RPC says that it offloads, whether or not there is one.
    """
    if not llama_cpp.llama_supports_rpc():
        return bool(llama_cpp.llama_supports_gpu_offload())
    from llama_cpp import _ggml

    find = _ggml.libggml.ggml_backend_dev_by_type
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_int]
    return any(find(kind) for kind in _CARDS)


def bound_memory(path: Path) -> None:
    """Limit the address space to what the file can need.

    With a graphics processor there is no limit, since drivers reserve arbitrary address space.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        folder = path.parent.glob("*.gguf") if "-of-" in path.name else [path]
        limit = SPARE_BYTES + 2 * sum(file.stat().st_size for file in folder)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _decodes(path: Path, layers: Sequence[int], *, reorder: bool) -> bool:
    import llama_cpp

    def log(level: int, text: bytes, _: ctypes.c_void_p) -> None:
        if level >= 3:  # warnings and errors
            sys.stderr.buffer.write(text)
            sys.stderr.buffer.flush()

    callback = llama_cpp.llama_log_callback(log)  # kept alive by this name
    llama_cpp.llama_log_set(callback, None)
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.check_tensors = True
    params.use_extra_bufts = reorder and tiles.unused(llama_cpp)  # as in the runtime
    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        return False
    context_params = llama_cpp.llama_context_default_params()
    context_params.n_ctx, context_params.n_batch, context_params.n_ubatch = 64, 8, 8
    context = llama_cpp.llama_init_from_model(model, context_params)
    if not context:
        return False
    taps = Taps(llama_cpp.llama_cpp._lib) if layers else None
    if taps is not None:
        taps.show(context, layers)
    token = (llama_cpp.llama_token * 1)(0)
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(token, 1)) != 0:
        return False
    rows = llama_cpp.llama_get_logits(context)
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    if not rows or np.isnan(np.ctypeslib.as_array(rows, (count,))).any():
        sys.stderr.write("error: its logits contain NaN or infinity\n")
        return False
    if taps is not None:
        hidden = llama_cpp.llama_model_n_embd(model)
        return bool(np.isfinite(taps.rows(context, layers, 1, hidden)).all())
    return True


if __name__ == "__main__":
    _sandbox_child.serve(main)
