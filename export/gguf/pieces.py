"""The order of rows in GGUF tensors that interleave those of canonical tensors.

In Qwen3.5's queries each head is followed by its gate. Where several value heads share a key, a
file has the first of each key, then the second of each; a checkpoint has those of a key together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet

Array = npt.NDArray[Any]


class Piece(NamedTuple):
    """Consecutive rows of a file's tensor.

    Attributes:
        role: the canonical tensor that has them.
        start, rows: its first row, and how many.

    """

    role: str
    start: int
    rows: int


def pieces(spec: DecoderSpec, roles: tuple[str, ...], layer: int) -> list[Piece]:
    """Return the rows of a file's tensor in its order; empty if that is the canonical one."""
    size = spec.head_dim
    if roles == ("q", "attention_gate"):
        starts = range(0, spec.q_size, size)
        return [Piece(role, start, size) for start in starts for role in roles]
    kind = spec.mixer(layer)
    if not isinstance(kind, DeltaNet) or kind.value_heads == kind.key_heads:
        return []
    before = 2 * kind.keys if roles[0] in ("mix_in", "conv") else 0
    if roles[0] in ("mix_in", "conv", "mix_gate"):
        size = kind.value_dim
    elif roles[0] in ("mix_step", "mix_beta", "step_bias", "decay"):
        size = 1
    else:
        return []
    first = [Piece(roles[0], 0, before)] if before else []
    return first + [Piece(roles[0], before + size * head, size) for head in tiled(kind)]


def tiled(kind: DeltaNet) -> list[int]:
    """Return the value heads in a file's order."""
    each = kind.value_heads // kind.key_heads
    return [key * each + place for place in range(each) for key in range(kind.key_heads)]


def columns(spec: DecoderSpec, role: str, layer: int) -> list[int]:
    """Return the equal groups of columns in a file's order; empty if that is the canonical one."""
    kind = spec.mixer(layer)
    if role != "mix_out" or not isinstance(kind, DeltaNet) or kind.value_heads == kind.key_heads:
        return []
    return tiled(kind)


def exchanged(rows: Array, groups: Sequence[int]) -> Array:
    """Return rows with their groups of columns in another order."""
    if not len(groups):
        return rows
    found: Array = rows.reshape(len(rows), len(groups), -1)[:, groups]
    return found.reshape(rows.shape)


def places(found: list[Piece], role: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where rows ``start`` to ``stop`` of a role are in the file, as runs of its rows."""
    at, own = 0, []
    for piece in found:
        if piece.role == role:
            own.append((piece.start, at, piece.rows))
        at += piece.rows
    for first, there, count in sorted(own):
        begin, end = max(start, first), min(stop, first + count)
        if begin < end:
            yield there + begin - first, there + end - first
