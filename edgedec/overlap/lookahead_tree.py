"""The draft's continuations of the last known token, grown best first.

A node's value is the probability that the target's text passes through it, estimated from the
draft's own choices, which are drawn with the target's noise if the rule couples them. This single
measure covers both PEARL's post-verify (2408.11850: assume that everything being verified is right,
and go on below it) and Mirror-SD's reuse (also expand likely corrections, the draft's own top-k),
each in proportion to its probability.

Nothing is dropped when the text advances: the root moves down the same pending tree, whether the
draft had predicted the token or not, so keys and values on the path stay computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from math import exp

from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.tree import RankCalibration
from edgedec.decoding.pass_times import FURTHER_ROW
from edgedec.decoding.policy.cost import RunningMedian
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.tree import TokenTree


class LookaheadNode:
    """A possible token, and the draft's distribution of the one after it.

    Two threads share nodes without a lock: one grows them, the other reads. Only the former writes,
    replacing a field as a whole; it writes ``ranked`` once, after ``scores``.

    Attributes:
        above: its parent; None for the oldest node that is kept.
        chance: probability that the text takes it, given that the text reaches ``above``.
        ranked: the draft's most likely next tokens, best first; None until computed.
        scores: logits of the draft's best next tokens, descending.
        others: next tokens that another drafter proposed.

    """

    __slots__ = ("above", "chance", "others", "ranked", "scores", "token")

    def __init__(self, token: int, above: LookaheadNode | None = None, chance: float = 1.0) -> None:
        self.token, self.above, self.chance = token, above, chance
        self.ranked: tuple[LookaheadNode, ...] | None = None
        self.scores: tuple[float, ...] = ()
        self.others: tuple[LookaheadNode, ...] = ()

    def below(self, token: int) -> LookaheadNode | None:
        for node in (*(self.ranked or ()), *self.others):
            if node.token == token:
                return node
        return None

    @property
    def computed(self) -> bool:
        """Return whether the draft has computed the next distribution; may change at any time."""
        return self.ranked is not None

    @property
    def confidence(self) -> float:
        """Probability of the draft's most likely next token, among its best tokens."""
        return 1 / sum(exp(score - self.scores[0]) for score in self.scores)

    def related(self, other: LookaheadNode) -> bool:
        """Return whether one of the two is an ancestor of the other."""
        return self.leads_to(other) or other.leads_to(self)

    def leads_to(self, other: LookaheadNode | None) -> bool:
        while other is not None and other is not self:
            other = other.above
        return other is self


# Most children per node.
_CHILDREN = 6
# Most pending nodes in the session; beyond it, those that lead to the root are committed.
_MOST = 64
# Most forks of the pending tree.
_FORKS = 28
# Most nodes computed in one pass.
_WIDEST = 16
# A node with a lower probability than this is not worth a pass.
_LEAST = 0.05
# A further row delays everything below the best one, so its value per time must be this many times
# as high (found by simulation: 1.6 times plain decoding instead of 1.45, with a draft at a third of
# the target's time).
_PATIENT = 4.0
# The probability that a token copied from earlier text is right.
_COPIED = 0.8


class DraftPassTimes:
    """Times of the draft's passes by rows: medians of the last few.

    A new width is extrapolated from the nearest measured one; before the first pass, the unit is a
    single-row pass.
    """

    def __init__(self) -> None:
        self._met: dict[int, RunningMedian] = {}

    def at(self, rows: int) -> float:
        """Return the seconds of a pass."""
        if not self._met:
            return _guess(rows)
        # A copy, since the other thread may add a width meanwhile.
        nearest = min(tuple(self._met), key=lambda width: abs(width - rows))
        return self._met[nearest].value * _guess(rows) / _guess(nearest)

    @property
    def known(self) -> bool:
        """Return whether ``at`` is in seconds."""
        return bool(self._met)

    def pays(self, rows: int, value: float) -> bool:
        """Return whether one more row has as much value per time as the first one.

        Args:
            rows: rows of the pass without it.
            value: value of the row, relative to the first one's.

        """
        return value * self.at(1) >= self.at(rows + 1) - self.at(rows)

    def observe(self, rows: int, seconds: float) -> None:
        """Record a pass's time."""
        if rows in self._met:
            self._met[rows].add(seconds)
        else:
            self._met[rows] = RunningMedian(9, [seconds])


def _guess(rows: int) -> float:
    return 1 + FURTHER_ROW * (rows - 1)


class LookaheadTree:
    """The lookahead tree of one request; used by one thread.

    The session's pending tree is rooted at the base, where the sampler's history ends. It keeps
    abandoned branches until it is full; then it is rebuilt at the root. Distributions below the
    root are kept; a node's ancestors are computed again with the first pass that needs them.

    Args:
        context: keeps the draft's session; begun with this request.
        sampler: this thread's own, with the same text and seed.
        root: the last known token.
        calibration: statistics of the draft's choices.
        branches: of the draft's ``Capabilities``.

    Attributes:
        computing: the nodes that the current pass computes.

    """

    def __init__(
        self,
        context: DraftContext,
        sampler: Sampler,
        root: LookaheadNode,
        calibration: RankCalibration,
        *,
        branches: int | None,
    ) -> None:
        self.computing: Sequence[LookaheadNode] = ()
        self._context, self._sampler, self._calibration = context, sampler, calibration
        self._branching = branches != 1
        self._most_forks = _FORKS if branches is None else min(_FORKS, branches - 1)
        self._root = root
        self._done = 0  # nodes computed
        self._start()

    def advance(self, root: LookaheadNode, kept: Sequence[int]) -> None:
        """Move to ``root``, reached by the tokens ``kept``, the last of which is the root's."""
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

    def grow(self, times: DraftPassTimes) -> int:
        """Run one pass and return its rows; 0 if none is worth it."""
        wanted = self._worth_a_pass(times)
        if not wanted:
            return 0
        if not self._fits(wanted):
            if self._branching and self._root is self._nodes[0]:
                return 0  # all pending nodes are below the root
            self._rebuild()
            if not self._fits(wanted):
                return 0  # the session is full
        self._append(wanted)
        self.computing = wanted
        try:
            rows = self._context.rows(self._tree)
        finally:
            self.computing = ()
        first, self._done = self._done, len(self._tree)
        for index in range(first, self._done):
            self._rank(index, rows)
        return self._done - first

    def _rank(self, index: int, rows: Rows) -> None:
        node = self._nodes[index]
        if node.ranked is None:  # else it was computed again for a node below it
            ids = rows.best(index, _CHILDREN)
            node.scores = tuple(self._context.top(index))
            chances = self._context.chances(index, ids)
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

    def _worth_a_pass(self, times: DraftPassTimes) -> list[LookaheadNode]:
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
                # A row below another row of this pass saves a pass; a sibling delays the next one.
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
        enough = size <= min(_MOST, self._context.room())
        return enough and forks <= self._most_forks

    def _missing(self, wanted: Sequence[LookaheadNode]) -> list[LookaheadNode]:
        """Return these nodes and their ancestors that are not pending, parents before children."""
        missing: dict[LookaheadNode, None] = {}
        for node in wanted:
            path: list[LookaheadNode] = []
            ancestor: LookaheadNode | None = node
            while (
                ancestor is not None and ancestor not in self._indices and ancestor not in missing
            ):
                path.append(ancestor)
                ancestor = ancestor.above
            missing.update(dict.fromkeys(reversed(path)))
        return list(missing)

    def _append(self, wanted: Sequence[LookaheadNode]) -> None:
        for node in self._missing(wanted):
            assert node.above is not None, "only the base has nothing above it"
            self._indices[node] = self._tree.add(node.token, self._indices[node.above])
            self._nodes.append(node)
            self._forks += node.above in self._inner
            self._inner.add(node.above)

    def _rebuild(self) -> None:
        """Commit the path to the root, drop the other nodes, and go on from there."""
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
        self._context.keep(self._tree, indices)
        self._sampler.push(self._settled)
        self._root.above = None  # so that a long text does not keep every node
        self._start()

    def _start(self) -> None:
        root = self._root
        self._tree = TokenTree(root.token)
        self._nodes, self._indices = [root], {root: 0}
        # Nodes with pending nodes below them, and the number of forks among those.
        self._inner: set[LookaheadNode | None] = set()
        self._forks = 0
        self._settled: list[int] = []  # tokens from the base to the root
        self._done = 0  # nodes computed


def _child(node: LookaheadNode, token: int, chance: float) -> LookaheadNode:
    """Return the child with a token that the draft chose: an existing one, or a new one."""
    known = node.below(token)
    if known is None:
        return LookaheadNode(token, node, chance)
    known.chance = max(known.chance, chance)
    return known
