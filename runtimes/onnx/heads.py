"""Where each layer's keys and values are, in graphs whose layers have different heads."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from edgedec.runtimes._ort.metadata import natural, positive

# Beyond any known model.
_MOST_HEADS, _WIDEST = 1 << 12, 1 << 16


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """Heads of each layer, and whose keys and values it reads.

    Attributes:
        heads: by layer, how many heads of keys it has, and the channels of one.
        lenders: by layer, the layer whose keys and values it reads: itself, or an earlier one.

    """

    heads: tuple[tuple[int, int], ...]
    lenders: tuple[int, ...]

    @classmethod
    def parse(cls, found: Any, layers: int) -> LayerHeads | None:
        """Return the heads of a graph with this many layers; ValueError if they are damaged."""
        if found is None:
            return None
        heads = tuple(sizes(one, other) for one, other in found["heads"])
        lenders = tuple(map(natural, found["lenders"]))
        if len(heads) != layers or len(lenders) != layers:
            raise ValueError("heads")
        for layer, lender in enumerate(lenders):
            lends = lender <= layer and lenders[lender] == lender
            if not lends or heads[lender] != heads[layer]:
                raise ValueError("lenders")
        return cls(heads, lenders)


def sizes(kv_heads: object, width: object) -> tuple[int, int]:
    """Return how many heads of keys, and the channels of one; ValueError if they are absurd."""
    found = positive(kv_heads), positive(width)
    if found[0] > _MOST_HEADS or found[1] > _WIDEST:
        raise ValueError("heads")
    return found


@functools.cache
def places(
    layers: tuple[int, ...], heads: tuple[tuple[int, int], ...], lenders: tuple[int, ...]
) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int, int]]]:
    """Return where layers' keys and values are in a ``KvCache``, and the sizes of its arrays.

    By ``key_LAYER`` and ``value_LAYER``, the number of the array and the entry of its first axis;
    and ``(entries, heads, channels)`` of each array.

    Args:
        layers: the layers that attend, ascending.
        heads, lenders: of each of those, as of ``LayerHeads``.

    """
    found: dict[str, tuple[int, int]] = {}
    counts = dict.fromkeys(heads, 0)
    groups = list(counts)
    for layer, shape, lender in zip(layers, heads, lenders, strict=True):
        for part in ("key", "value"):
            if lender != layer:
                found[f"{part}_{layer}"] = found[f"{part}_{lender}"]
                continue
            found[f"{part}_{layer}"] = groups.index(shape), counts[shape]
            counts[shape] += 1
    return found, [(count, *shape) for shape, count in counts.items()]
