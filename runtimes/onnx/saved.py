"""A session's committed rows as bytes, and what tells one model from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from edgedec.errors import SnapshotError
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.file import read_model_file

# Of each file of weights: enough to tell two trainings of one architecture apart.
_SAMPLE = 1 << 20


def fingerprint(file: Path) -> str:
    """Of the graph, whole, and of the beginning of its weights; the same wherever they stand."""
    digest = hashlib.sha256(file.read_bytes())
    for location in sorted({stored[0] for stored in read_model_file(file).stored}):
        with (file.parent / location).open("rb") as weights:
            digest.update(weights.read(_SAMPLE))
    return digest.hexdigest()


def rows_of(cache: KvCache, length: int) -> bytes:
    """The first ``length`` tokens of a cache."""
    rows: bytes = cache.rows[:, :, :length].tobytes()
    return rows


def put_rows(cache: KvCache, payload: bytearray, length: int) -> None:
    """Write what ``rows_of`` gave back into the beginning of a cache.

    Raises:
        SnapshotError: the payload is not of so many tokens.

    """
    sides, heads, _, width = cache.rows.shape
    rows = np.frombuffer(payload, cache.rows.dtype)
    if rows.size != sides * heads * length * width:
        raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
    cache.rows[:, :, :length] = rows.reshape(sides, heads, length, width)
