"""Token Recycling (2408.08696): proposes tokens that the target recently ranked high."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec.decoding import snapshot
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DrafterState,
    DraftLimits,
    DraftToken,
    GoOn,
    RoundFeedback,
    TokenDrafter,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft
from edgedec.errors import SnapshotError

_SUCCESSORS = 8
_UNKNOWN = -1
_NODES, _LEVELS = 80, 6


class Template:
    """A static tree, best nodes first, so that any prefix of it is a usable tree.

    Instead of the paper's published shape, the successor of rank r is assumed to be right with
    probability 0.5 / (r + 1)^1.5, independently at each level; a node's value is the product along
    its path, and nodes are listed by value. A parent is always worth more than its children and so
    comes first.

    Args:
        nodes: drafted nodes (the root is not listed).
        levels: longest path below the root.
        ranks: children a node may have; 1 gives a chain.

    Attributes:
        parents, ranks, depths, values: one entry per node; parent 0 is the root, parent i
            the i-th entry.

    """

    def __init__(self, nodes: int, levels: int, ranks: int = _SUCCESSORS) -> None:
        chance = [0.5 / (rank + 1) ** 1.5 for rank in range(ranks)]
        self.parents: list[int] = []
        self.ranks: list[int] = []
        self.depths: list[int] = []
        self.values: list[float] = []
        # (-value, order, parent, rank, depth, value of the parent)
        heap = [(-chance[0], 0, 0, 0, 1, 1.0)]
        order = 1
        while heap and len(self.parents) < nodes:
            value, _, parent, rank, depth, above = heapq.heappop(heap)
            self.parents.append(parent)
            self.ranks.append(rank)
            self.depths.append(depth)
            self.values.append(-value)
            node = len(self.parents)
            if rank + 1 < ranks:
                sibling = (-above * chance[rank + 1], order, parent, rank + 1, depth, above)
                heapq.heappush(heap, sibling)
            if depth < levels:
                heapq.heappush(heap, (value * chance[0], order + 1, node, 0, depth + 1, -value))
            order += 2


class RecycleDrafter(TokenDrafter):
    """Reads a tree from a matrix of every token's eight most likely successors when last scored.

    It learns from every row the target computes, accepted or not, and keeps its contents from one
    request to the next. For an unknown token, its successor in the prompt is used.

    Args:
        vocab_size: rows of the matrix, which takes ``vocab_size * 32`` bytes.
        branches: most leaves of a tree; 1 uses best successors only, None sets no limit.
        rivals: the drafters that are tried next, if any.

    """

    name = "recycle"

    def __init__(
        self, vocab_size: int, *, branches: int | None = None, rivals: Sequence[str] = ()
    ) -> None:
        super().__init__(rivals)
        self._matrix: npt.NDArray[np.int32]
        self._matrix = np.full((vocab_size, _SUCCESSORS), _UNKNOWN, dtype=np.int32)
        self._template = Template(_NODES, _LEVELS, 1 if branches == 1 else _SUCCESSORS)
        self._most = _NODES if branches is None else branches

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        super().begin(prompt, sampler)
        if not self._matrix.flags.writeable:
            self._matrix = self._matrix.copy()
        tokens = np.asarray(prompt, dtype=np.int64)
        here, after = tokens[:-1], tokens[1:]
        # Written in the order of the text, so that the newest successor remains.
        new = self._matrix[here, 0] == _UNKNOWN
        for token, successor in zip(here[new].tolist(), after[new].tolist(), strict=True):
            self._matrix[token, 0] = successor

    def ready(self, limits: DraftLimits, go_on: GoOn) -> DraftLimits:
        return limits

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        tree, template, successor = draft.tree, self._template, self._matrix.item
        if successor(tree.tokens[0], 0) == _UNKNOWN:
            return  # most tokens are unknown at first
        nodes = [0] + [_UNKNOWN] * len(template.parents)
        inner, leaves = set(), 1
        for index, parent in enumerate(template.parents):
            above = nodes[parent]
            if above == _UNKNOWN or template.depths[index] > limits.depth:
                continue
            token = successor(tree.tokens[above], template.ranks[index])
            if token == _UNKNOWN or (above in inner and leaves == self._most):
                continue
            if self._sampler is not None and not self._sampler.permits(tree, above, token):
                continue
            value = template.values[parent - 1] if parent else 1.0
            yield DraftToken(token, template.values[index] / value, above, value)
            nodes[index + 1] = len(tree) - 1
            leaves += above in inner
            inner.add(above)

    def observe(self, feedback: RoundFeedback) -> None:
        best = feedback.scored.top_ids[:, :_SUCCESSORS]
        width = best.shape[1]
        matrix = self._matrix
        if not matrix.flags.writeable:
            return  # evicted until the next request
        # One row after the other: for a token that occurs twice in the tree, the later row counts.
        for row, token in enumerate(feedback.draft.tree.tokens):
            matrix[token, :width] = best[row]

    @property
    def empty(self) -> bool:
        return False

    def states(self) -> dict[str, DrafterState]:
        return {self.name: self}

    def save(self, file: BinaryIO) -> None:
        """See ``DrafterState``: the matrix."""
        snapshot.write(
            file, runtime=self.name, model=self._shape, length=0, payload=[self._matrix.tobytes()]
        )

    def load(self, file: BinaryIO, text: Sequence[int]) -> None:
        most = self._matrix.nbytes
        _, payload = snapshot.read(file, runtime=self.name, model=self._shape, most=most)
        if len(payload) != most:
            raise SnapshotError("the saved successors are damaged: save the text again")
        matrix = np.frombuffer(payload, np.int32).reshape(self._matrix.shape)
        if matrix.min() < _UNKNOWN or matrix.max() >= len(matrix):
            raise SnapshotError("the saved successors are not token ids: save the text again")
        self._matrix = matrix

    @property
    def _shape(self) -> str:
        return "x".join(map(str, self._matrix.shape))

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; nothing is learned or drafted until the next request."""
        if self.name not in keep:
            self._matrix = np.broadcast_to(np.int32(_UNKNOWN), self._matrix.shape)


INFO = DrafterInfo(
    branches=True,
    vocab_bytes=4 * _SUCCESSORS,
    learns=True,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return RecycleDrafter(parts.vocab_size, branches=parts.branches, rivals=parts.rivals)
