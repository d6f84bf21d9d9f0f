"""The residual streams before layers, as llama.cpp's own drivers of EAGLE-3 heads read them.

The functions are in llama.cpp's staging header (src/llama-ext.h). So the library has them under C++
names, here as GCC and Clang write them, and may change them; they are the same in the llama.cpp of
llama-cpp-python 0.3.30, 0.3.35 and 0.3.36. A stream that the graph of an architecture does not show
ends the process, which is why ``check`` tries it in a child before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_SET = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
_GET = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"
# By ``general.architecture``; others end in the child, at the cost of loading them.
ARCHITECTURES = (
    "gemma4", "gpt-oss", "lfm2", "lfm2moe", "llama", "mimo2", "minimax-m2", "nemotron_h",
    "nemotron_h_moe", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe",
)  # fmt: skip


def may_show(architecture: str | None, count: int, layers: Sequence[int]) -> bool:
    """Return whether llama.cpp's graph of an architecture shows the streams before these layers.

    It shows none behind the last one of ``count``.
    """
    known = architecture in ARCHITECTURES
    return known and bool(layers) and all(0 <= layer < count for layer in layers)


class Taps:
    """The two functions of a loaded library.

    Raises:
        AttributeError: it has none of these names.

    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._set, self._get = library[_SET], library[_GET]
        self._set.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
        self._set.restype = None
        self._get.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._get.restype = ctypes.c_void_p

    def show(self, context: Any, layers: Sequence[int]) -> None:
        """Make the passes of a context keep the streams before these layers."""
        for layer in layers:
            self._set(context, layer, True)

    def rows(
        self, context: Any, layers: Sequence[int], count: int, hidden: int
    ) -> npt.NDArray[np.float32]:
        """Return the streams of the last pass's first tokens, ``[count, layers * hidden]``."""
        shown = np.empty((count, len(layers), hidden), np.float32)
        size = count * hidden
        for index, layer in enumerate(layers):
            block: Any = (ctypes.c_float * size).from_address(self._get(context, layer))
            shown[:, index] = np.frombuffer(block, np.float32).reshape(count, hidden)
        return shown.reshape(count, -1)
