"""Chooses a drafted tree's size by Sequoia's dynamic programme (2402.12374, section 4.1).

Costs are as measured: a pass over four rows may be cheaper than one over three, so every size is
tried and none is skipped because of its neighbours' costs. A chain is a tree with one child per
node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

# Seconds of a pass over this many rows.
Seconds = Callable[[int], float]
_NO_TREE = -float("inf")


@dataclass(frozen=True, slots=True)
class Size:
    """A draft's shape and the result of a round with it.

    Attributes:
        nodes: drafted tokens.
        depth: longest path below the root, which is also the number of draft passes.
        tokens: expected emitted tokens per round, including the target's own.
        seconds: time of a round.

    """

    nodes: int
    depth: int
    tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def best_tree(
    trees: Trees,
    target: Seconds,
    draft: Seconds,
    *,
    overhead_s: float = 0.0,
    branches: int | None = None,
) -> Size:
    """Return the tree with the most tokens per second, over every number of nodes and every depth.

    Args:
        trees: the best tree of each size.
        target: time of a target pass by its rows.
        draft: time of a draft pass by its rows; each layer but the last takes one.
        overhead_s: time of a round outside passes.
        branches: most leaves that both models support; None is any number.

    """
    sizes = []
    for rows, depth, expected, layers in trees.each:
        if branches is not None and trees.leaves(rows, depth) > branches:
            continue
        drafted_s = sum(draft(width) for width in layers[:-1])
        seconds = target(rows) + drafted_s + overhead_s
        sizes.append(Size(rows - 1, depth, expected, seconds))
    return max(sizes, key=lambda size: (size.rate, -size.nodes, -size.depth))


class Trees:
    """Sequoia's table: the largest expected number of tokens for trees of each size and depth.

    T[m, l, b] is the value of the best tree of m nodes and l layers, counting the root, whose root
    has b children::

        T[1, l, 0] = 1
        T[m, l, b] = max over y of T[y, l, b - 1] + p_b max over b' of T[m - y, l - 1, b']

    Args:
        chances: p_1, p_2, ..., the probability that the target takes the child of this rank.
        most: largest number of nodes, counting the root.
        deepest: largest number of layers below the root.

    """

    def __init__(self, chances: Sequence[float], most: int, deepest: int) -> None:
        self._chances = list(chances)
        ranks = len(self._chances)
        shape = (most + 1, deepest + 2, ranks + 1)
        self._best: npt.NDArray[np.float64] = np.full(shape, _NO_TREE)
        # Number of nodes of the root and its earlier children.
        self._kept: npt.NDArray[np.int64] = np.zeros(shape, np.int64)
        self._best[1, 1:, 0] = 1.0
        for layers in range(2, deepest + 2):
            below = self._best[:, layers - 1].max(axis=1)
            for rank in range(1, ranks + 1):
                for nodes in range(2, most + 1):
                    kept = np.arange(1, nodes)
                    subtree = below[nodes - kept]
                    # A chance of 0 must not give a tree without nodes.
                    with np.errstate(invalid="ignore"):
                        gained = self._chances[rank - 1] * subtree
                    gained[subtree == _NO_TREE] = _NO_TREE
                    values = self._best[kept, layers, rank - 1] + gained
                    choice = int(np.argmax(values))
                    self._best[nodes, layers, rank] = values[choice]
                    self._kept[nodes, layers, rank] = kept[choice]

    @cached_property
    def each(self) -> list[tuple[int, int, float, list[int]]]:
        """Return rows, depth, expected tokens and layers of every tree that drafts something."""
        most, deepest = self._best.shape[0] - 1, self._best.shape[1] - 2
        found = {}
        for nodes in range(2, most + 1):
            for depth in range(1, min(nodes - 1, deepest) + 1):
                expected = self.expected(nodes, depth)
                if expected >= 1:  # else more nodes than ranks and depth have room for
                    layers = self.layers(nodes, depth)
                    found[nodes, len(layers) - 1] = expected, layers
        return [(nodes, depth, *tree) for (nodes, depth), tree in found.items()]

    def expected(self, nodes: int, depth: int) -> float:
        """Return the expected tokens of the best tree with this many nodes and at most this depth.

        Below 1 if there is none: a tree of 9 nodes needs more than one rank or depth 8.
        """
        return float(self._best[nodes, depth + 1].max())

    def layers(self, nodes: int, depth: int) -> list[int]:
        """Return how many nodes that tree has at depth 0, 1, ..."""
        counts = [0] * (depth + 1)
        self._count(nodes, depth + 1, 0, counts)
        while counts[-1] == 0:
            counts.pop()
        return counts

    def leaves(self, nodes: int, depth: int) -> int:
        """Return how many nodes of that tree have no children."""
        return self._leaves(nodes, depth + 1)

    def _leaves(self, nodes: int, layers: int) -> int:
        rank = int(np.argmax(self._best[nodes, layers]))
        found = 0 if rank else 1
        while rank:
            kept = int(self._kept[nodes, layers, rank])
            found += self._leaves(nodes - kept, layers - 1)
            nodes, rank = kept, rank - 1
        return found

    def _count(self, nodes: int, layers: int, depth: int, counts: list[int]) -> None:
        counts[depth] += 1
        rank = int(np.argmax(self._best[nodes, layers]))
        while rank:
            kept = int(self._kept[nodes, layers, rank])
            self._count(nodes - kept, layers - 1, depth + 1, counts)
            nodes, rank = kept, rank - 1
