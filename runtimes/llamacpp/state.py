"""A session's state in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec.decoding import snapshot
from edgedec.errors import CapacityExceeded
from edgedec.runtimes.llamacpp.context import CHUNK

if TYPE_CHECKING:
    from edgedec.runtimes.llamacpp.model import LlamaModel

State = npt.NDArray[np.uint8]

_RUNTIME = "llamacpp"
# What llama.cpp writes beside keys and values: for each token its position and sequences.
_BYTES_PER_TOKEN = 2048
_BYTES = 1 << 16


def write_state(file: BinaryIO, model: LlamaModel, state: State | None, length: int) -> None:
    """Write a state of so many tokens; None is that of none."""
    payload = [] if state is None else [state.data]
    snapshot.write(file, runtime=_RUNTIME, model=model.fingerprint, length=length, payload=payload)


def read_state(file: BinaryIO, model: LlamaModel, capacity: int) -> tuple[State, int]:
    """A state and its tokens, every byte as it was written.

    Raises:
        SnapshotError: damaged, or of another model.
        CapacityExceeded: longer than ``capacity``.

    """
    bytes_per_token = model.info.kv_bytes_per_token + _BYTES_PER_TOKEN
    most = bytes_per_token * (capacity + CHUNK) + model.state_bytes + _BYTES
    length, payload = snapshot.read(file, runtime=_RUNTIME, model=model.fingerprint, most=most)
    if length > capacity:
        raise CapacityExceeded(f"the saved state has {length} tokens: the session holds {capacity}")
    return np.frombuffer(payload, np.uint8), length


def cells_of(state: State, model: LlamaModel, length: int) -> int:
    """Cells that a state may need: nodes that were pending are in it, too."""
    each = model.info.kv_bytes_per_token
    return max(length, state.size // each if each else 0)
