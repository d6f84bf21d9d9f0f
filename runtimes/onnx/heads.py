"""Where each layer's keys and values are, in graphs whose layers have different heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgedec.runtimes._ort.metadata import positive

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
        """Return what a graph of so many layers states; ValueError if it is damaged."""
        if found is None:
            return None
        heads = tuple((positive(one), positive(other)) for one, other in found["heads"])
        lenders = tuple(positive(layer + 1) - 1 for layer in found["lenders"])
        if len(heads) != layers or len(lenders) != layers:
            raise ValueError("heads")
        if max(one for one, _ in heads) > _MOST_HEADS or max(dim for _, dim in heads) > _WIDEST:
            raise ValueError("heads")
        for layer, lender in enumerate(lenders):
            lends = lender <= layer and lenders[lender] == lender
            if not lends or heads[lender] != heads[layer]:
                raise ValueError("lenders")
        return cls(heads, lenders)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer's keys are in a ``KvCache``; its values follow them.

    Attributes:
        group: number of the array.
        entry: of its first axis.

    """

    group: int
    entry: int


def places(
    layers: tuple[int, ...], heads: tuple[tuple[int, int], ...], lenders: tuple[int, ...]
) -> tuple[dict[int, Place], list[tuple[int, int, int]]]:
    """Return each layer's place, and ``(entries, heads, channels)`` of the arrays.

    Args:
        layers: the layers that attend, ascending.
        heads, lenders: of each of those, as of ``LayerHeads``.

    """
    found: dict[int, Place] = {}
    counts: dict[tuple[int, int], int] = {}
    groups: list[tuple[int, int]] = list(dict.fromkeys(heads))
    for layer, shape, lender in zip(layers, heads, lenders, strict=True):
        if lender != layer:
            found[layer] = found[lender]
            continue
        counts[shape] = counts.get(shape, 0) + 2
        found[layer] = Place(groups.index(shape), counts[shape] - 2)
    return found, [(counts[shape], *shape) for shape in groups]
