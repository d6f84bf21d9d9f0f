"""A small model drafts a tree: DySpec's layered rule (2410.11744, section 4.3)."""

from __future__ import annotations

import heapq
from bisect import bisect_right

import numpy as np

from edgedec.decoding import drafting
from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftStep,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.errors import InputError

_WIDEST = 8
_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
_PRIOR_WEIGHT = 6.0
_FORGET = 0.99


class RankCalibration:
    """Acceptance statistics of a node's first, second, ... child, by the draft's confidence.

    DySpec estimates a child's acceptance probability by its draft probability. That holds for
    DySpec's acceptance rule; if draft and target share their noise, a first child drawn from a flat
    distribution is accepted far more often. So the draft probability serves as the prior, which
    observations correct.
    """

    def __init__(self) -> None:
        self._tries = np.zeros((len(_EDGES) + 1, _WIDEST), dtype=np.float32)
        self._hits = np.zeros_like(self._tries)

    @staticmethod
    def bin(confidence: float) -> int:
        """Return the bin of a confidence; rows of similar confidence share one."""
        return bisect_right(_EDGES, confidence)

    def chances(self, bin: int, chances: FloatArray) -> FloatArray:
        """Return acceptance probabilities of children in draw order, ``[children]``.

        Args:
            bin: the confidence bin of their parent.
            chances: their draft probabilities.

        """
        count = len(chances)
        tries, hits = self._tries[bin, :count], self._hits[bin, :count]
        corrected: FloatArray = (_PRIOR_WEIGHT * chances + hits) / (_PRIOR_WEIGHT + tries)
        return corrected

    def learn(self, bin: int, children: int, taken: int | None) -> None:
        """Learn which of a node's children the target accepted, if any."""
        self._tries[bin, :children] *= _FORGET
        self._hits[bin, :children] *= _FORGET
        self._tries[bin, :children] += 1
        if taken is not None:
            self._hits[bin, taken] += 1


class TreeDrafter(ModelDrafter):
    """Expands every slot whose estimated probability of being reached exceeds C, layer by layer.

    A slot is a place for one more child: its value is the draft's estimate that the target reaches
    the parent and takes none of the parent's earlier children. A layer costs one draft pass. Within
    a layer slots are filled best first, so a limit on nodes drops the worst; and always before the
    child is drawn, so that rejection sampling stays unbiased.

    Args:
        parts: with a draft model.
        threshold: C; None is 1 / (nodes + 1), about one expected accepted node per pass.
        context: as for ``ModelDrafter``.

    """

    name = "tree"

    def __init__(
        self,
        parts: DrafterParts,
        threshold: float | None = None,
        context: Context | None = None,
    ) -> None:
        if parts.both_branches == 1:
            only = "verified here, as with --batch-invariant"
            if parts.branches != 1:
                only = "computed by the draft model"
            other = drafting.HEADED if parts.head else drafting.default(with_model=True)
            raise InputError(
                f"drafter {self.name!r} branches, and only chains are {only}: use {other!r}"
            )
        super().__init__(parts, context)
        self._threshold, self._branches = threshold, parts.both_branches
        self._calibration = RankCalibration()
        self._bins: dict[int, int] = {}

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree = TokenTree(root)
        q: dict[int, FloatArray] = {}
        draft = Draft(tree, q, self.name)
        if min(limits.nodes, limits.depth) <= 0:
            return draft
        room = self._context.make_room(limits.nodes)
        nodes = min(limits.nodes, room)
        if nodes <= 0 or not self._caught_up(go_on, 1.0):
            return draft
        threshold = self._threshold or 1 / (limits.nodes + 1)
        layer = {0: 1.0}
        self._bins = {}
        for depth in range(limits.depth):
            # The nodes of this layer are not computed yet, and must fit.
            if not layer or len(tree) > room or len(tree) > nodes:
                break
            slots = _Slots(self, tree, layer, None if streams.coupled else q)
            slots.forks = nodes if self._branches is None else self._branches - tree.leaves
            layer = slots.fill(depth, nodes, threshold, go_on)
        draft.passes = self._context.passes(tree)
        return draft

    def children(self, rows: Rows, parent: int, *, coupled: bool) -> tuple[list[int], list[float]]:
        """Return children to draw below a node, in draw order, with acceptance probabilities."""
        ids = rows.best(parent, _WIDEST)
        context = self._context
        chances = context.chances(parent, ids)
        if coupled:
            bin = self._bins[parent] = RankCalibration.bin(context.confidence(parent))
            chances = self._calibration.chances(bin, chances)
        return ids.tolist(), chances.tolist()

    def rows(self, tree: TokenTree) -> Rows:
        """Return the rows of the last layer, computed on first use."""
        return self._context.rows(tree)

    def observe(self, feedback: RoundFeedback) -> None:
        tree, path = feedback.draft.tree, feedback.verdict.path
        for node, below in zip(path, [*path[1:], None], strict=True):
            children = tree.children(node)
            if children and node in self._bins:
                taken = None if below is None else children.index(below)
                self._calibration.learn(self._bins[node], len(children), taken)
        super().observe(feedback)


class _Slots:
    """The slots of one layer, best first.

    Attributes:
        forks: number of second and later children that the tree may still get.

    """

    def __init__(
        self,
        drafter: TreeDrafter,
        tree: TokenTree,
        layer: dict[int, float],
        q: dict[int, FloatArray] | None,
    ) -> None:
        self._drafter, self._tree, self._q = drafter, tree, q
        self.forks = 0
        self._reach = layer
        # (-value, parent, number of its children): among equals the lower node comes first.
        self._heap = [(-value, node, 0) for node, value in layer.items()]
        heapq.heapify(self._heap)
        self._rows: Rows | None = None
        self._children: dict[int, tuple[list[int], list[float]]] = {}

    def fill(self, depth: int, nodes: int, threshold: float, go_on: GoOn) -> dict[int, float]:
        """Draw children until no slot is worth it; return them with their values."""
        tree = self._tree
        drawn: dict[int, float] = {}
        name, rivals = self._drafter.name, self._drafter.rivals
        offer = Offer(name, self._confidence, costly=True, rivals=rivals)
        while self._heap and len(tree) <= nodes:
            value = -self._heap[0][0]
            if self._heap[0][2] and not self.forks:
                heapq.heappop(self._heap)
                continue
            if value <= threshold or not go_on(DraftStep(offer, len(tree) - 1, depth, value)):
                break
            parent, rank = heapq.heappop(self._heap)[1:]
            self.forks -= rank > 0
            tokens, chances = self._look(parent)
            child = self._reach[parent] * chances[rank]
            drawn[tree.add(tokens[rank], parent)] = child
            if rank + 1 < len(tokens):
                heapq.heappush(self._heap, (child - value, parent, rank + 1))
        return drawn

    def _look(self, parent: int) -> tuple[list[int], list[float]]:
        """Return a node's children in draw order, and their acceptance probabilities."""
        known = self._children.get(parent)
        if known is None:
            rows, coupled = self._layer(), self._q is None
            if self._q is not None:
                self._q[parent] = rows.probs(parent)
            known = self._drafter.children(rows, parent, coupled=coupled)
            self._children[parent] = known
        return known

    def _layer(self) -> Rows:
        # Done once: later the tree has children that this layer must not compute.
        if self._rows is None:
            self._rows = self._drafter.rows(self._tree)
        return self._rows

    def _confidence(self) -> float:
        """Return the best slot's acceptance probability, given that the target reaches it."""
        value, parent, rank = self._heap[0]
        tokens, chances = self._look(parent)
        if self._q is None:
            chance = chances[rank]
        else:
            # The decision to go on must not depend on the child still to be drawn.
            left = self._q[parent].copy()
            left[tokens[:rank]] = 0
            chance = float(left.max())
        # The value shrinks by the chances of earlier siblings; rounding must not make it 0.
        return min(1.0, chance * self._reach[parent] / max(-value, 1e-9))


INFO = DrafterInfo(
    needs_model=True,
    branches=True,
    needs_branches=True,
    lengths=(),
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return TreeDrafter(parts)
