"""Stores a session's committed rows as bytes, and identifies models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec._support.files import open_regular, sampled
from edgedec._support.opened_before import OpenedBefore
from edgedec.bundle.onnx_file import ModelFile, read_model_file
from edgedec.decoding import snapshot
from edgedec.errors import SnapshotError
from edgedec.hardware.outcomes import KnownOutcomes

Rows = npt.NDArray[Any]


def fingerprint(file: Path, stored: ModelFile | None = None) -> str:
    """Hash the whole graph and samples of its weights, independently of their location.

    The samples are spread over each file: fine-tuned models often share their embeddings, which
    come first.

    Args:
        stored: its contents from ``read_model_file``, if it was read.

    """
    digest = hashlib.sha256(file.read_bytes())
    for location in locations(stored or read_model_file(file)):
        with open_regular(file.parent / location) as weights:
            digest.update(repr(sampled(weights)).encode())
    return digest.hexdigest()


def content_digest(file: Path, stored: ModelFile, kind: str, version: str) -> str:
    """Hash all bytes of a model's files; unchanged files are hashed only once.

    Args:
        stored: its contents from ``read_model_file``.
        kind, version: key under which digests are stored; see ``OpenedBefore``.

    Raises:
        OSError: a file cannot be read, or changed while it was read.

    """
    known = OpenedBefore(kind, version)
    found = known.digest([file, *(file.parent / name for name in locations(stored))])
    known.save()
    return found


def known_outcomes(
    kind: str, file: Path, stored: ModelFile, threads: int, kernels: str | None
) -> KnownOutcomes:
    """Return the stored outcomes for one graph.

    Args:
        kind, threads, kernels: see ``KnownOutcomes``.
        stored: its contents from ``read_model_file``.

    """
    files = [file, *(file.parent / name for name in locations(stored))]
    return KnownOutcomes(kind, files, lambda: fingerprint(file, stored), threads, kernels)


def locations(stored: ModelFile) -> list[str]:
    """Return the files of a model's weights, relative to its graph."""
    return sorted({location for location, _, _ in stored.stored})


def token_bytes(groups: Sequence[Rows]) -> int:
    """Return the bytes per token of caches ``[entries, kv_heads, slots, width]``."""
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
        SnapshotError: the payload does not have ``length`` tokens, or one is not finite.

    """
    shapes = [(*rows.shape[:2], length, rows.shape[3]) for rows in groups]
    sizes = [int(np.prod(s)) * g.dtype.itemsize for s, g in zip(shapes, groups, strict=True)]
    if len(payload) != sum(sizes):
        raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
    found, at = [], 0
    for rows, shape, size in zip(groups, shapes, sizes, strict=True):
        values = snapshot.numbers(payload, rows.dtype, size // rows.dtype.itemsize, at)
        found.append(values.reshape(shape))
        at += size
    return found
