"""llama.cpp without edgedec: its tokens, its logits after a text, the same weights in other types.

A row is computed in passes as wide as edgedec's in plain decoding: the prompt but for its last
token in parts of 128, then single tokens. So the bits are the same where the settings are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")

_KINDS = {"f32": 0, "q4_0": 2}  # llama_ftype
_CHUNK = 128


class Alone:
    """A GGUF file in llama.cpp; ``f32`` also keeps keys and values in that type."""

    def __init__(self, file: Path, *, f32: bool = False, flash: bool = False) -> None:
        kv: dict[str, Any] = {"type_k": 0, "type_v": 0} if f32 else {}
        self._model = llama_cpp.Llama(
            str(file), n_ctx=2048, n_batch=_CHUNK, n_ubatch=_CHUNK, n_threads=1, n_threads_batch=1,
            flash_attn=flash, swa_full=True, logits_all=True, verbose=False, **kv,
        )  # fmt: skip

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with the beginning that the file asks for."""
        return list(self._model.tokenize(text.encode()))

    def rows(self, prompt: Sequence[int], text: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the logits from which each token of a text is chosen, ``[tokens, vocab]``."""
        model = self._model
        model.reset()
        model.eval(prompt[:-1])
        model.eval(prompt[-1:])
        found = []
        for token in text:
            found.append(np.array(model.scores[model.n_tokens - 1]))
            model.eval([token])
        return np.stack(found)

    def gaps(self, prompt: Sequence[int], text: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return how far each token of a text is below the best one, in logits; 0 is greedy."""
        rows = self.rows(prompt, text)
        below: npt.NDArray[np.float32] = rows.max(1) - rows[np.arange(len(text)), list(text)]
        return below

    def close(self) -> None:
        """Free it."""
        self._model.close()


def requantise(file: Path, out: Path, kind: str) -> None:
    """Write a GGUF file's weights in another type."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = _KINDS[kind], True
    code = llama_cpp.llama_model_quantize(str(file).encode(), str(out).encode(), params)
    assert code == 0
