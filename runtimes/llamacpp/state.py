"""Limits on a saved state's size, in bytes and in cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgedec.runtimes.llamacpp.context import CHUNK

if TYPE_CHECKING:
    from edgedec.runtimes.llamacpp.model import LlamaModel

State = npt.NDArray[np.uint8]

# llama.cpp writes more than keys and values: the position and the sequences of each token.
_BYTES_PER_TOKEN = 2048
_BYTES = 1 << 16


def most_bytes(model: LlamaModel, capacity: int) -> int:
    """Return the most bytes of a state of at most ``capacity`` tokens."""
    bytes_per_token = model.info.kv_bytes_per_token + _BYTES_PER_TOKEN
    return bytes_per_token * (capacity + CHUNK) + model.state_bytes + _BYTES


def cells_of(state: State, model: LlamaModel, length: int) -> int:
    """Return the cells that a state may need, including pending nodes."""
    each = model.info.kv_bytes_per_token
    return max(length, state.size // each if each else 0)
