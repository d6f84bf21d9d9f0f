"""Chooses how much of a long text a draft model sees, by what each view costs and brings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from edgedec.decoding.drafting import DRAFT_CONTEXT
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree

# Views are this many tokens, times four and so on.
_SMALLEST, _FACTOR = 128, 4
# The last tokens of a text, on which two views are compared.
SCORED = 48
# Rounds that are drafted in a text before views are compared, and between two comparisons.
_ROUNDS = 16
# Share of a text's time that comparing may take once the first comparison is paid for.
_SHARE = 0.03
# A view that keeps losing is tried ever more rarely, down to this share of the time.
_RAREST = 8
# Evidence on a pair of views fades, and begins with this many tokens that both draft alike.
_FORGET, _PRIOR = 0.7, 16.0
# Passes of which the quickest tells a view's cost.
_TIMED = 3
# A draft that is always right would promise rounds without end.
_SUREST = 0.98


# First tokens that are kept: attention rests on them wherever the text is (2309.17453, 3.1).
SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


class View:
    """The first tokens and the last ones (StreamingLLM, 2309.17453), once the text is too long.

    The last ones grow until the view is full; then half of it is left, and read again, since
    positions are those in the view. That is one token read for each token of text, many at a time,
    which costs far less than the passes that draft. The target sees the whole text, so only the
    acceptance can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        size: as given; may change, before ``slide`` or ``show``.
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:SINKS], *text[SINKS + self.left_out :]]

    def length(self, text: Sequence[int]) -> int:
        """Return the number of tokens that are seen."""
        return len(text) - self.left_out

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the view is too small for that.
        """
        if self.size < _LEAST:
            return None
        return self.show(text, self.size // 2)

    def show(self, text: Sequence[int], last: int) -> int | None:
        """Leave out what lies before this many last tokens; return as ``slide``.

        None also if nothing was left out and nothing is.
        """
        before, self.left_out = self.left_out, max(0, len(text) - SINKS - last)
        return SINKS if before or self.left_out else None


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a view on the last tokens of a text.

    Attributes:
        right: how many of the tokens it would have drafted.
        pass_s: seconds of a draft pass over one row.

    """

    right: int
    pass_s: float


def try_out(
    session: Session,
    widest: int,
    held: list[int],
    text: Sequence[int],
    clock: Callable[[], float],
) -> Trial:
    """Read a text up to its last token, and return how much of its end the draft got right.

    Args:
        session: of the draft, which holds ``held``, a prefix of the text that ends before the
            tokens to be scored.
        widest: most nodes of a pass.
        held: kept up to date.
        text: what is seen of it.
        clock: returns seconds.

    """
    place = len(text) - 1 - SCORED
    if place > len(held):
        try:
            session.prefill(text[len(held) : place])
        finally:  # also if interrupted between chunks
            held += text[len(held) : session.length]
    right = 0
    for start in range(place, len(text) - 1, widest):
        rows = list(text[start : min(start + widest, len(text) - 1)])
        scored = session.forward(TokenTree.chain(rows), want=Want.TOP)
        right += int((scored.top_ids[:, 0] == text[start + 1 : start + len(rows) + 1]).sum())
        session.commit(range(len(rows)))
        held += rows
    times = []
    for _ in range(_TIMED):
        began = clock()
        session.forward(TokenTree(text[-1]), want=Want.TOP)
        times.append(clock() - began)
        session.commit(())
    return Trial(right, min(times))


class Evidence:
    """How often the smaller and the larger of two views were right on the same tokens."""

    def __init__(self) -> None:
        self._scored = 0.0
        self._right = [0.0, 0.0]

    def add(self, *right: int) -> None:
        """Add a comparison."""
        self._scored = _FORGET * self._scored + SCORED
        self._right = [_FORGET * old + new for old, new in zip(self._right, right, strict=True)]

    def chances(self) -> list[float]:
        """Return how likely each is to be right, somewhat closer to each other than was seen."""
        common = sum(self._right) / 2 / self._scored
        return [(one + _PRIOR * common) / (self._scored + _PRIOR) for one in self._right]


class ViewChoice:
    """Compares views on the same tokens, and keeps the one that decodes faster.

    A view of fewer tokens makes passes quicker and long prompts sooner read; what it costs in
    acceptance depends on the draft and the text. From time to time a part of the text's end is
    therefore scored under the present view and under another one: how many of its tokens each would
    have drafted, and how long a pass takes. The faster one at the rounds' usual length stays. What
    this takes is paid from a small share of the time.

    Args:
        capacity: tokens that the draft's session holds.

    Attributes:
        sizes: the views, ascending.
        size: the present one.

    """

    def __init__(self, capacity: int) -> None:
        sizes = []
        size = _SMALLEST
        while size < capacity:
            sizes.append(size)
            size *= _FACTOR
        self.sizes = (*sizes, capacity)
        self.size = min(self.sizes, key=lambda one: abs(one - DRAFT_CONTEXT))
        self._rounds = 0
        self._credit_s = 0.0
        self._losses: dict[int, int] = {}
        self._times_tried = dict.fromkeys(self.sizes, 0)
        # By a pair of views, the smaller first.
        self._evidence: dict[tuple[int, int], Evidence] = {}
        self._outside_s: deque[float] = deque(maxlen=15)
        self._passes: deque[int] = deque(maxlen=15)

    def begin(self) -> None:
        """Begin another text."""
        self._rounds = 0

    def round(self, passes: int, draft_s: float, outside_s: float) -> None:
        """Count a round that drafted.

        Args:
            passes: of the draft model.
            draft_s: their seconds.
            outside_s: seconds until the target's verdict.

        """
        self._rounds += 1
        self._passes.append(passes)
        self._outside_s.append(outside_s)
        self._credit_s += _SHARE * (draft_s + outside_s)

    def due(self, text: int) -> int | None:
        """Return the view to compare with the present one now, in a text of so many tokens."""
        if self._rounds < _ROUNDS or self._credit_s < 0:
            return None
        others = [size for size in self.sizes if size != self.size]
        # Of a shorter text both show everything, or nearly so.
        able = [size for size in others if text > min(size, self.size) + SCORED]
        return min(able, key=lambda size: self._times_tried[size], default=None)

    def prefers(self, other: int, present: Trial, tried: Trial) -> bool:
        """Learn from a comparison with another view; return whether that is kept from now on."""
        pair = (self.size, other) if self.size < other else (other, self.size)
        known = self._evidence.setdefault(pair, Evidence())
        mine, theirs = (present, tried) if self.size < other else (tried, present)
        known.add(mine.right, theirs.right)
        chances = dict(zip(pair, known.chances(), strict=True))
        better = self._rate(chances[other], tried.pass_s) > self._rate(
            chances[self.size], present.pass_s
        )
        self._losses[other] = 0 if better else self._losses.get(other, 0) + 1
        self._times_tried[other] += 1
        if better:
            self.size = other
        return better

    def paid(self, other: int, seconds: float) -> None:
        """Account for the time that a comparison with another view took."""
        self._rounds = 0
        self._credit_s -= seconds * min(_RAREST, max(1, self._losses[other]))

    def _rate(self, chance: float, pass_s: float) -> float:
        """Return tokens per second at the rounds' usual draft length."""
        passes, sure = _typical(self._passes), min(chance, _SUREST)
        emitted: float = (1 - sure ** (passes + 1)) / (1 - sure)
        return emitted / (_typical(self._outside_s) + passes * pass_s)


def _typical(values: Sequence[float]) -> float:
    return float(median(values)) if values else 1.0
