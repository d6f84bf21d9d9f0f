"""Logits and token ids as llama.cpp computes them from a GGUF; runs in a child process."""

from __future__ import annotations

import os
from typing import Any

import llama_cpp
import numpy as np

_BATCH = 64


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Compute logits and tokenise texts with a model.

    Args:
        request: ``file``; ``tokens``, ids to read; ``columns``, how many logits of each to
            keep; ``out``, file for them as float32 ``[n, columns]``; ``texts`` to tokenise;
            ``threads``.

    Returns:
        ``ids``: token ids of each text.

    """
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    # Plain kernels: repacked ones depend on the machine, and some builds crash with AMX.
    params.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(os.fsencode(request["file"]), params)
    if not model:
        raise RuntimeError("llama.cpp could not load the file")
    try:
        if request["tokens"]:
            _logits(model, request)
        return {"ids": [_tokenise(model, text) for text in request["texts"]]}
    finally:
        llama_cpp.llama_model_free(model)


def _logits(model: Any, request: dict[str, Any]) -> None:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = len(request["tokens"])
    params.n_batch = params.n_ubatch = _BATCH
    params.n_threads = params.n_threads_batch = request["threads"]
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = True
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp could not create a context")
    rows = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
    try:
        _decode(context, batch, rows, request)
    finally:
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)


def _decode(context: Any, batch: Any, rows: int, request: dict[str, Any]) -> None:
    tokens, columns = request["tokens"], request["columns"]
    with open(request["out"], "wb") as out:  # noqa: PTH123
        for start in range(0, len(tokens), _BATCH):
            part = tokens[start : start + _BATCH]
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = token, start + i
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
            code = llama_cpp.llama_decode(context, batch)
            if code:
                raise RuntimeError(f"llama_decode returned {code}")
            found = llama_cpp.llama_get_logits(context)
            logits = np.ctypeslib.as_array(found, (len(part), rows))
            out.write(np.ascontiguousarray(logits[:, :columns]).tobytes())


def _tokenise(model: Any, text: str) -> list[int]:
    """Return the token ids of a text, without special tokens."""
    vocab = llama_cpp.llama_model_get_vocab(model)
    data = text.encode()
    ids = (llama_cpp.llama_token * (len(data) + 8))()
    count = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), False, False)
    if count < 0:
        raise RuntimeError(f"llama_tokenize returned {count}")
    return list(ids[:count])
