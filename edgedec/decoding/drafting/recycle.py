"""Token Recycling (2408.08696): proposes tokens that the target recently ranked high."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
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
    DraftStep,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft, TokenTree
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


class RecycleDrafter:
    """Reads a tree from a matrix of every token's eight most likely successors when last scored.

    It learns from every row the target computes, accepted or not, and keeps its contents from one
    request to the next. For an unknown token, its successor in the prompt is used.

    Args:
        vocab_size: rows of the matrix, which takes ``vocab_size * 32`` bytes.
        branches: most leaves of a tree; 1 uses best successors only, None sets no limit.

    """

    name = "recycle"

    def __init__(self, vocab_size: int, *, branches: int | None = None) -> None:
        self._matrix: npt.NDArray[np.int32]
        self._matrix = np.full((vocab_size, _SUCCESSORS), _UNKNOWN, dtype=np.int32)
        self._template = Template(_NODES, _LEVELS, 1 if branches == 1 else _SUCCESSORS)
        self._most = _NODES if branches is None else branches
        self._sampler: Sampler | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        if not self._matrix.flags.writeable:
            self._matrix = self._matrix.copy()
        tokens = np.asarray(prompt, dtype=np.int64)
        here, after = tokens[:-1], tokens[1:]
        # Written in the order of the text, so that the newest successor remains.
        new = self._matrix[here, 0] == _UNKNOWN
        for token, successor in zip(here[new].tolist(), after[new].tolist(), strict=True):
            self._matrix[token, 0] = successor

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree = TokenTree(root)
        draft = Draft(tree, source=self.name)
        template, successor, sampler = self._template, self._matrix.item, self._sampler
        if successor(root, 0) == _UNKNOWN:
            return draft  # most tokens are unknown at first

        def confidence() -> float:
            return template.values[index] / above_value

        index, above_value, token = 0, 1.0, root
        offer = Offer(self.name, confidence, lambda: token)
        nodes = [0] + [_UNKNOWN] * len(template.parents)
        inner, leaves = set(), 1
        for index, parent in enumerate(template.parents):
            above = nodes[parent]
            depth = template.depths[index]
            if above == _UNKNOWN or depth > limits.depth:
                continue
            if len(tree) > limits.nodes:
                break
            token = successor(tree.tokens[above], template.ranks[index])
            if token == _UNKNOWN or (above in inner and leaves == self._most):
                continue
            if sampler is not None and not sampler.permits(tree, above, token):
                continue
            above_value = template.values[parent - 1] if parent else 1.0
            if not go_on(DraftStep(offer, len(tree) - 1, depth - 1, above_value)):
                break
            nodes[index + 1] = tree.add(token, above)
            leaves += above in inner
            inner.add(above)
        return draft

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

    def close(self) -> None:
        pass


INFO = DrafterInfo(
    branches=True,
    vocab_bytes=4 * _SUCCESSORS,
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return RecycleDrafter(parts.vocab_size, branches=parts.branches)
