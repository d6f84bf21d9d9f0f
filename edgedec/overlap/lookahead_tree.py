"""The lookahead tree: the draft's continuations of the last known token, grown best first.

A node's value is the chance that the target's text goes through it, by the draft's own choices,
drawn with the target's noise where the rule couples them. That one measure is PEARL's
post-verify (2408.11850: assume that all of what is verified is right, and go on below it) and
Mirror-SD's reuse (beside it the likely corrections are expanded, by the draft's own top-k), each
as far as it is likely.

Nothing is dropped when the text moves on: the root moves down the same pending tree, whether the
draft had thought of the token or not, so that keys and values on the way stay computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from edgedec.decoding.drafting._follow import Follower
from edgedec.decoding.drafting.tree import RankCalibration
from edgedec.decoding.policy.cost import RunningMedian
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.tree import TokenTree
from edgedec.overlap.lookahead_node import LookaheadNode

# Children of a node that are thought of.
_CHILDREN = 6
# Nodes that are pending in the session at most; then those that lead to the root are committed.
_MOST = 64
# Times that the pending tree forks at most.
_FORKS = 28
# Nodes that a pass is worth computing for, at most.
_WIDEST = 16
# What the text goes through with less of a chance than this is not worth a pass.
_LEAST = 0.05
# A row beside the best one delays all that comes below that. So it is computed where it brings so
# many times as much for its time (found by replay: 1.6 times plain decoding, not 1.45, with a
# draft at a third of the target's time).
_PATIENT = 4.0
# The chance that a token copied from the text before is right.
_COPIED = 0.8
# A row beyond the first takes about 0.15 of it where weights are read once a pass.
_MORE = 0.15


class PassTimes:
    """Times of the draft's passes by rows: medians of the last few.

    A width that was not met yet is guessed from the nearest one that was; before the first pass
    the unit is a pass over one row.
    """

    def __init__(self) -> None:
        self._met: dict[int, RunningMedian] = {}

    def at(self, rows: int) -> float:
        """Seconds of a pass."""
        if not self._met:
            return _guess(rows)
        nearest = min(self._met, key=lambda width: abs(width - rows))
        return self._met[nearest].value * _guess(rows) / _guess(nearest)

    @property
    def known(self) -> bool:
        """True if ``at`` is in seconds."""
        return bool(self._met)

    def pays(self, rows: int, value: float) -> bool:
        """True if one more row brings as much for its time as the first one does.

        Args:
            rows: that a pass has.
            value: of the row, as a share of the first one's.

        """
        return value * self.at(1) >= self.at(rows + 1) - self.at(rows)

    def observe(self, rows: int, seconds: float) -> None:
        """A pass took so long."""
        if rows in self._met:
            self._met[rows].add(seconds)
        else:
            self._met[rows] = RunningMedian(9, [seconds])


def _guess(rows: int) -> float:
    return 1 + _MORE * (rows - 1)


class LookaheadTree:
    """The lookahead tree of one text; used by one thread.

    The pending tree of the session is rooted at the base, where the sampler's history ends. It
    keeps what the text has left aside until it is full; then it is planted anew at the root.
    What was computed below the root is remembered; a node's ancestors are computed again with
    the first pass that needs them.

    Args:
        follower: of the draft's session; begun with this text.
        sampler: this thread's own, of the same text and seed.
        root: the last token known.
        calibration: what was learned of the draft's choices.
        branches: of the draft's ``Capabilities``.

    Attributes:
        computing: the nodes that the running pass is for.

    """

    def __init__(
        self,
        follower: Follower,
        sampler: Sampler,
        root: LookaheadNode,
        calibration: RankCalibration,
        *,
        branches: int | None,
    ) -> None:
        self.computing: Sequence[LookaheadNode] = ()
        self._follower, self._sampler, self._calibration = follower, sampler, calibration
        self._branching = branches != 1
        self._most_forks = _FORKS if branches is None else min(_FORKS, branches - 1)
        self._root = root
        self._done = 0  # nodes computed
        self._start()

    def advance(self, root: LookaheadNode, kept: Sequence[int]) -> None:
        """The text went on by ``kept``, whose last token is the root now."""
        node: LookaheadNode | None = self._root
        for token in kept:
            if node is None:
                break
            self._learn(node, token)
            node = node.below(token)
        self._settled += kept
        self._root = root

    def add(self, root: LookaheadNode, tokens: Sequence[int]) -> None:
        """Add a path of tokens that another drafter proposed."""
        node = root
        for token in tokens:
            below = node.below(token)
            if below is None:
                below = LookaheadNode(token, node, _COPIED)
                node.others += (below,)
            node = below

    def grow(self, times: PassTimes) -> int:
        """One pass; its rows, 0 where none is worth it."""
        wanted = self._worth_a_pass(times)
        if not wanted:
            return 0
        if not self._fits(wanted):
            if self._branching and self._root is self._nodes[0]:
                return 0  # all that is pending is below the root
            self._replant()
            if not self._fits(wanted):
                return 0  # the end of the session's capacity
        self._plant(wanted)
        self.computing = wanted
        try:
            rows = self._follower.rows(self._tree)
        finally:
            self.computing = ()
        first, self._done = self._done, len(self._tree)
        for index in range(first, self._done):
            self._rank(index, rows)
        return self._done - first

    def _rank(self, index: int, rows: Rows) -> None:
        node = self._nodes[index]
        if node.ranked is None:  # else it was computed again for what is below it
            ids = rows.best(index, _CHILDREN)
            node.scores = tuple(self._follower.scores(index))
            chances = self._follower.chances(rows, index, ids)
            chances = self._calibration.chances(RankCalibration.bin(node.confidence), chances)
            both = zip(ids.tolist(), chances.tolist(), strict=True)
            ranked = tuple(_child(node, token, chance) for token, chance in both)
            node.ranked = ranked
            node.others = tuple(other for other in node.others if other not in ranked)

    def _learn(self, node: LookaheadNode, token: int) -> None:
        if node.ranked:
            choices = [choice.token for choice in node.ranked]
            taken = choices.index(token) if token in choices else None
            self._calibration.learn(RankCalibration.bin(node.confidence), len(choices), taken)

    def _worth_a_pass(self, times: PassTimes) -> list[LookaheadNode]:
        """Return the nodes to compute next, best first, hence parents before children."""
        order = count()
        heap = [(-1.0, next(order), self._root)]
        found: list[LookaheadNode] = []
        first = 0.0
        while heap and len(found) < _WIDEST:
            value, _, node = heappop(heap)
            if -value < _LEAST:
                break
            if node.ranked is None:
                # Below another row of the pass it saves a pass; beside it, it delays the next.
                share = value / first if found else 0.0
                share = share if node.above in found else share / _PATIENT
                if found and not times.pays(len(found), share):
                    continue
                found.append(node)
                first = first or value
            for child in self._choices(node):
                heappush(heap, (value * child.chance, next(order), child))
        return found

    def _choices(self, node: LookaheadNode) -> Sequence[LookaheadNode]:
        ranked = node.ranked or ()
        if self._branching:
            return (*ranked, *node.others)
        return node.others[-1:] or ranked[:1]

    def _fits(self, wanted: Sequence[LookaheadNode]) -> bool:
        missing = self._missing(wanted)
        forks, inner = self._forks, set(self._inner)
        for node in missing:
            forks += node.above in inner
            inner.add(node.above)
        size = len(self._tree) + len(missing)
        enough = size <= min(_MOST, self._follower.room())
        return enough and forks <= self._most_forks

    def _missing(self, wanted: Sequence[LookaheadNode]) -> list[LookaheadNode]:
        """Those, and those above them, that are not pending; parents before children."""
        missing: dict[LookaheadNode, None] = {}
        for node in wanted:
            path: list[LookaheadNode] = []
            place: LookaheadNode | None = node
            while place is not None and place not in self._indices and place not in missing:
                path.append(place)
                place = place.above
            missing.update(dict.fromkeys(reversed(path)))
        return list(missing)

    def _plant(self, wanted: Sequence[LookaheadNode]) -> None:
        for node in self._missing(wanted):
            assert node.above is not None, "only the base has nothing above it"
            self._indices[node] = self._tree.add(node.token, self._indices[node.above])
            self._nodes.append(node)
            self._forks += node.above in self._inner
            self._inner.add(node.above)

    def _replant(self) -> None:
        """Commit what leads to the root, forget what does not, and go on from there."""
        path: list[LookaheadNode] = []
        node = self._root.above
        while node is not None:
            path.append(node)
            node = node.above
        indices: list[int] = []
        for node in reversed(path):
            index = self._indices.get(node, self._done)
            if index >= self._done:
                break
            indices.append(index)
        self._follower.keep(self._tree, indices)
        self._sampler.push(self._settled)
        self._root.above = None  # a long text does not keep all that was ever thought of it
        self._start()

    def _start(self) -> None:
        root = self._root
        self._tree = TokenTree(root.token)
        self._nodes, self._indices = [root], {root: 0}
        # Nodes with something pending below them, and how often that is more than one thing.
        self._inner: set[LookaheadNode | None] = set()
        self._forks = 0
        self._settled: list[int] = []  # tokens from the base to the root
        self._done = 0  # nodes computed


def _child(node: LookaheadNode, token: int, chance: float) -> LookaheadNode:
    """Return the node of a token the draft chose, a known one where there is one."""
    known = node.below(token)
    if known is None:
        return LookaheadNode(token, node, chance)
    known.chance = max(known.chance, chance)
    return known
