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
from edgedec.overlap.lookahead_node import Twig

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


class Thicket:
    """The lookahead tree of one text; used by one thread.

    The pending tree of the session is rooted at the base, where the sampler's history ends. It
    keeps what the text has left aside until it is full; then it is planted anew at the root.
    What was computed below the root is remembered; a twig's ancestors are computed again with
    the first pass that needs them.

    Args:
        follower: of the draft's session; begun with this text.
        sampler: this thread's own, of the same text and seed.
        root: the last token known.
        calibration: what was learned of the draft's choices.
        branches: of the draft's ``Capabilities``.

    Attributes:
        computing: the twigs that the running pass is for.

    """

    def __init__(
        self,
        follower: Follower,
        sampler: Sampler,
        root: Twig,
        calibration: RankCalibration,
        *,
        branches: int | None,
    ) -> None:
        self.computing: Sequence[Twig] = ()
        self._follower, self._sampler, self._calibration = follower, sampler, calibration
        self._branching = branches != 1
        self._most_forks = _FORKS if branches is None else min(_FORKS, branches - 1)
        self._root = root
        self._done = 0  # nodes computed
        self._start()

    def advance(self, root: Twig, kept: Sequence[int]) -> None:
        """The text went on by ``kept``, whose last token is the root now."""
        twig: Twig | None = self._root
        for token in kept:
            if twig is None:
                break
            self._learn(twig, token)
            twig = twig.below(token)
        self._settled += kept
        self._root = root

    def add(self, root: Twig, tokens: Sequence[int]) -> None:
        """Somebody else thought of these tokens, one after the other."""
        twig = root
        for token in tokens:
            below = twig.below(token)
            if below is None:
                below = Twig(token, twig, _COPIED)
                twig.others += (below,)
            twig = below

    def grow(self, times: PassTimes) -> int:
        """One pass; its rows, 0 where none is worth it."""
        wanted = self._worth_a_pass(times)
        if not wanted:
            return 0
        if not self._fits(wanted):
            if self._branching and self._root is self._twigs[0]:
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
        for node in range(first, self._done):
            self._rank(node, rows)
        return self._done - first

    def _rank(self, node: int, rows: Rows) -> None:
        twig = self._twigs[node]
        if twig.ranked is None:  # else it was computed again for what is below it
            ids = rows.best(node, _CHILDREN)
            twig.scores = tuple(self._follower.scores(node))
            chances = self._follower.chances(rows, node, ids)
            chances = self._calibration.chances(RankCalibration.bin(twig.confidence), chances)
            both = zip(ids.tolist(), chances.tolist(), strict=True)
            ranked = tuple(_child(twig, token, chance) for token, chance in both)
            twig.ranked = ranked
            twig.others = tuple(other for other in twig.others if other not in ranked)

    def _learn(self, twig: Twig, token: int) -> None:
        if twig.ranked:
            choices = [choice.token for choice in twig.ranked]
            taken = choices.index(token) if token in choices else None
            self._calibration.learn(RankCalibration.bin(twig.confidence), len(choices), taken)

    def _worth_a_pass(self, times: PassTimes) -> list[Twig]:
        """Return the nodes to compute next, best first, hence parents before children."""
        order = count()
        heap = [(-1.0, next(order), self._root)]
        found: list[Twig] = []
        first = 0.0
        while heap and len(found) < _WIDEST:
            value, _, twig = heappop(heap)
            if -value < _LEAST:
                break
            if twig.ranked is None:
                # Below another row of the pass it saves a pass; beside it, it delays the next.
                share = value / first if found else 0.0
                share = share if twig.above in found else share / _PATIENT
                if found and not times.pays(len(found), share):
                    continue
                found.append(twig)
                first = first or value
            for child in self._choices(twig):
                heappush(heap, (value * child.chance, next(order), child))
        return found

    def _choices(self, twig: Twig) -> Sequence[Twig]:
        ranked = twig.ranked or ()
        if self._branching:
            return (*ranked, *twig.others)
        return twig.others[-1:] or ranked[:1]

    def _fits(self, wanted: Sequence[Twig]) -> bool:
        missing = self._missing(wanted)
        forks, inner = self._forks, set(self._inner)
        for twig in missing:
            forks += twig.above in inner
            inner.add(twig.above)
        nodes = len(self._tree) + len(missing)
        enough = nodes <= min(_MOST, self._follower.room())
        return enough and forks <= self._most_forks

    def _missing(self, wanted: Sequence[Twig]) -> list[Twig]:
        """Those, and those above them, that are not pending; parents before children."""
        missing: dict[Twig, None] = {}
        for twig in wanted:
            path: list[Twig] = []
            place: Twig | None = twig
            while place is not None and place not in self._nodes and place not in missing:
                path.append(place)
                place = place.above
            missing.update(dict.fromkeys(reversed(path)))
        return list(missing)

    def _plant(self, wanted: Sequence[Twig]) -> None:
        for twig in self._missing(wanted):
            assert twig.above is not None, "only the base has nothing above it"
            self._nodes[twig] = self._tree.add(twig.token, self._nodes[twig.above])
            self._twigs.append(twig)
            self._forks += twig.above in self._inner
            self._inner.add(twig.above)

    def _replant(self) -> None:
        """Commit what leads to the root, forget what does not, and go on from there."""
        path: list[Twig] = []
        twig = self._root.above
        while twig is not None:
            path.append(twig)
            twig = twig.above
        nodes: list[int] = []
        for twig in reversed(path):
            node = self._nodes.get(twig, self._done)
            if node >= self._done:
                break
            nodes.append(node)
        self._follower.keep(self._tree, nodes)
        self._sampler.push(self._settled)
        self._root.above = None  # a long text does not keep all that was ever thought of it
        self._start()

    def _start(self) -> None:
        root = self._root
        self._tree = TokenTree(root.token)
        self._twigs, self._nodes = [root], {root: 0}
        # Twigs with something pending below them, and how often that is more than one thing.
        self._inner: set[Twig | None] = set()
        self._forks = 0
        self._settled: list[int] = []  # tokens from the base to the root
        self._done = 0  # nodes computed


def _child(twig: Twig, token: int, chance: float) -> Twig:
    """Return the node of a token the draft chose, a known one where there is one."""
    known = twig.below(token)
    if known is None:
        return Twig(token, twig, chance)
    known.chance = max(known.chance, chance)
    return known
