"""Stores a session's committed rows as bytes, and identifies models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.bundle.onnx_file import read_model_file
from edgedec.errors import SnapshotError

# Bytes read of each file of weights: enough to tell two trainings of one architecture apart.
_SAMPLE = 1 << 20

Rows = npt.NDArray[Any]


def fingerprint(file: Path) -> str:
    """Hash the whole graph and the beginning of its weights, independently of their location."""
    digest = hashlib.sha256(file.read_bytes())
    for location in sorted({stored[0] for stored in read_model_file(file).stored}):
        with (file.parent / location).open("rb") as weights:
            digest.update(weights.read(_SAMPLE))
    return digest.hexdigest()


def token_bytes(groups: Sequence[Rows]) -> int:
    """Return the bytes of a token in caches ``[entries, kv_heads, slots, width]``."""
    return sum(
        entries * heads * width * rows.dtype.itemsize
        for rows in groups
        for entries, heads, _, width in [rows.shape]
    )


def rows_of(groups: Sequence[Rows], length: int) -> list[bytes]:
    """Return the first ``length`` tokens of caches ``[entries, kv_heads, slots, width]``."""
    return [rows[:, :, :length].tobytes() for rows in groups]


def rows_from(payload: bytearray, groups: Sequence[Rows], length: int) -> list[Rows]:
    """Return the rows from ``rows_of`` for caches like ``groups``, as views of the payload.

    Raises:
        SnapshotError: the payload has another number of tokens.

    """
    shapes = [(*rows.shape[:2], length, rows.shape[3]) for rows in groups]
    sizes = [int(np.prod(s)) * g.dtype.itemsize for s, g in zip(shapes, groups, strict=True)]
    if len(payload) != sum(sizes):
        raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
    found, at = [], 0
    for rows, shape, size in zip(groups, shapes, sizes, strict=True):
        found.append(np.frombuffer(payload, rows.dtype, size // rows.dtype.itemsize, at))
        found[-1] = found[-1].reshape(shape)
        at += size
    return found
