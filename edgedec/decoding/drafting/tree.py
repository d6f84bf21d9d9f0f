"""A small model drafts a tree: DySpec's layered rule (2410.11744, section 4.3)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from edgedec.decoding.drafting._follow import Follower
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterParts,
    DraftLimits,
    DraftStep,
    GoOn,
    RoundFeedback,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.errors import InputError

_WIDEST = 8


class TreeDrafter:
    """Expands every slot whose estimated chance to matter exceeds C, layer by layer.

    A slot is a place for one more child: its value is the draft's estimate that the target
    reaches the parent and takes none of the parent's earlier children. A layer costs one
    draft pass. Within a layer slots are filled best first, so a limit on nodes drops the
    worst; and always before the child is drawn, which keeps rejection rules unbiased.

    Args:
        parts: a draft model.
        threshold: C; None is 1 / (nodes + 1), about one expected accepted node per pass.

    """

    name = "tree"

    def __init__(self, parts: DrafterParts, threshold: float | None = None) -> None:
        if not parts.branching:
            raise InputError("drafter 'tree': this target verifies chains only: use 'model'")
        self._follower = Follower(parts, self.name)
        self._threshold = threshold

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._follower.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree = TokenTree(root)
        q: dict[int, FloatArray] = {}
        draft = Draft(tree, q, self.name)
        room = self._follower.room()
        nodes = min(limits.nodes, room)
        if min(nodes, limits.depth) <= 0 or not self._follower.near():
            return draft
        threshold = self._threshold or 1 / (limits.nodes + 1)
        layer = {0: 1.0}
        for depth in range(limits.depth):
            # The nodes of this layer are still to be computed, and must fit.
            if not layer or len(tree) > room or len(tree) > nodes:
                break
            slots = _Slots(self._follower, tree, layer, None if streams.coupled else q)
            layer = slots.fill(depth, nodes, threshold, go_on)
        draft.passes = self._follower.passes(tree)
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        kept = feedback.verdict.path[: len(feedback.kept)]
        self._follower.keep(feedback.draft.tree, kept)

    def close(self) -> None:
        self._follower.close()


class _Slots:
    """The slots of one layer, best first."""

    def __init__(
        self,
        follower: Follower,
        tree: TokenTree,
        layer: dict[int, float],
        q: dict[int, FloatArray] | None,
    ) -> None:
        self._follower, self._tree, self._q = follower, tree, q
        self._reach = layer
        # (-value, parent, children it has): of equal ones the lower node comes first.
        self._heap = [(-value, node, 0) for node, value in layer.items()]
        heapq.heapify(self._heap)
        self._rows: Rows | None = None
        self._children: dict[int, tuple[list[int], list[float]]] = {}

    def fill(self, depth: int, nodes: int, threshold: float, go_on: GoOn) -> dict[int, float]:
        """Draw children until no slot is worth it; returns them with their values."""
        tree = self._tree
        drawn: dict[int, float] = {}
        step = DraftStep(depth, self._entropy, self._confidence, TreeDrafter.name)
        while self._heap and len(tree) <= nodes:
            value = -self._heap[0][0]
            step.nodes, step.value = len(tree) - 1, value
            if value <= threshold or not go_on(step):
                break
            parent, rank = heapq.heappop(self._heap)[1:]
            tokens, chances = self._look(parent)
            child = self._reach[parent] * chances[rank]
            drawn[tree.add(tokens[rank], parent)] = child
            if rank + 1 < len(tokens):
                heapq.heappush(self._heap, (child - value, parent, rank + 1))
        return drawn

    def _look(self, parent: int) -> tuple[list[int], list[float]]:
        """Children of a node in draw order, and the draft's probabilities of them."""
        known = self._children.get(parent)
        if known is None:
            rows = self._layer()
            ids = rows.best(parent, _WIDEST)
            chances = self._follower.chances(rows, parent, ids)
            if self._q is not None:
                self._q[parent] = rows.probs(parent)
            known = self._children[parent] = ids.tolist(), chances.tolist()
        return known

    def _layer(self) -> Rows:
        # Asked once: later the tree has children that this layer must not compute.
        if self._rows is None:
            self._rows = self._follower.rows(self._tree)
        return self._rows

    def _entropy(self) -> float:
        return self._layer().entropy(self._heap[0][1])

    def _confidence(self) -> float:
        """Chance of the next child of the best slot, given that the target gets there."""
        value, parent, rank = self._heap[0]
        tokens, chances = self._look(parent)
        if self._q is None:
            chance = chances[rank]
        else:
            # How far to go must not depend on a draw that is still to come.
            left = self._q[parent].copy()
            left[tokens[:rank]] = 0
            chance = float(left.max())
        return min(1.0, -chance * self._reach[parent] / value)


NEEDS_MODEL = True


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return TreeDrafter(parts)
