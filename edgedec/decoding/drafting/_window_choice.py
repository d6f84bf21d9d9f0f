"""Chooses the size of a draft model's context window, by measured cost and accuracy.

A *window* is the part of a text that the draft model sees: its first tokens and its last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from edgedec.decoding.drafting import DRAFT_CONTEXT
from edgedec.decoding.pass_times import time_pass
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import TokenTree

# The smallest window in tokens, and the ratio of each size to the one before.
_SMALLEST, _FACTOR = 128, 4
# The last tokens of a text, on which two windows are compared.
SCORED = 48
# Rounds that are drafted in a text before windows are compared, and between two comparisons.
_ROUNDS = 16
# Share of decoding time that comparisons may take after the first.
_SHARE = 0.03
# A window that keeps losing is tried more and more rarely, down to one in this many.
_RAREST = 8
# Decay of earlier evidence on a pair of windows, and the weight in tokens of the prior that both
# are equally accurate.
_FORGET, _PRIOR = 0.7, 16.0
# Passes timed per window; the quickest counts.
_TIMED = 3
# Upper bound of an accuracy, since at 1 the expected accepted length would be infinite.
_SUREST = 0.98


# First tokens that every window keeps: they are attention sinks (2309.17453, section 3.1).
ATTENTION_SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


class Window:
    """The first and the last tokens of a text that exceeds the window (StreamingLLM, 2309.17453).

    The window grows until it is full; then its older half is dropped and the rest computed again,
    since positions count within it. That prefills one token for each token of text, in large
    chunks, and costs far less than the draft passes. The target sees the whole text, so only the
    acceptance rate can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        size: as given; may be changed before ``slide`` or ``show``.
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:ATTENTION_SINKS], *text[ATTENTION_SINKS + self.left_out :]]

    def length(self, text: Sequence[int]) -> int:
        """Return the number of tokens that are seen."""
        return len(text) - self.left_out

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > ATTENTION_SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the window is too small for that.
        """
        if self.size < _LEAST:
            return None
        return self.show(text, self.size // 2)

    def show(self, text: Sequence[int], last: int) -> int | None:
        """Leave out what lies before this many last tokens; return as ``slide``.

        None also if nothing was left out and nothing is.
        """
        before, self.left_out = self.left_out, max(0, len(text) - ATTENTION_SINKS - last)
        return ATTENTION_SINKS if before or self.left_out else None


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of scoring the last tokens of a text with a window.

    Attributes:
        right: number of tokens that the draft would have predicted.
        pass_s: time of a single-row draft pass, in seconds.

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
    """Read a text up to its last token, and score the draft's predictions of its end.

    Args:
        session: of the draft, which holds ``held``, a prefix of the text that ends before the
            tokens to be scored.
        widest: most nodes of a pass.
        held: kept up to date.
        text: what is seen of it.
        clock: returns seconds.

    """
    index = len(text) - 1 - SCORED
    if index > len(held):
        try:
            session.prefill(text[len(held) : index])
        finally:  # also if interrupted between chunks
            held += text[len(held) : session.length]
    right = 0
    for start in range(index, len(text) - 1, widest):
        rows = list(text[start : min(start + widest, len(text) - 1)])
        scored = session.forward(TokenTree.chain(rows), want=Want.TOP)
        right += int((scored.top_ids[:, 0] == text[start + 1 : start + len(rows) + 1]).sum())
        session.commit(range(len(rows)))
        held += rows
    return Trial(right, min(time_pass(session, text[-1:], clock) for _ in range(_TIMED)))


class Evidence:
    """Accuracies of the smaller and the larger of two windows on the same tokens."""

    def __init__(self) -> None:
        self._scored = 0.0
        self._right = [0.0, 0.0]

    def add(self, *right: int) -> None:
        """Add a comparison."""
        self._scored = _FORGET * self._scored + SCORED
        self._right = [_FORGET * old + new for old, new in zip(self._right, right, strict=True)]

    def chances(self) -> list[float]:
        """Return both accuracies, shrunk towards their mean by the prior."""
        common = sum(self._right) / 2 / self._scored
        return [(one + _PRIOR * common) / (self._scored + _PRIOR) for one in self._right]


class WindowChoice:
    """Compares windows on the same tokens, and keeps the one that decodes faster.

    A smaller window makes draft passes and prefill faster; what it costs in acceptance depends on
    the draft and the text. From time to time the end of the text is therefore scored with the
    present window and with another: how many tokens each predicts, and how long a pass takes. The
    faster one at the usual draft length is kept. Comparisons take a small share of decoding time.

    Args:
        capacity: tokens that the draft's session holds.

    Attributes:
        sizes: sizes of the windows in tokens, ascending.
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
        # By pair of windows, the smaller first.
        self._evidence: dict[tuple[int, int], Evidence] = {}
        self._outside_s: deque[float] = deque(maxlen=15)
        self._passes: deque[int] = deque(maxlen=15)

    def begin(self) -> None:
        """Begin another request."""
        self._rounds = 0

    def round(self, passes: int, draft_s: float, outside_s: float) -> None:
        """Count a round that drafted.

        Args:
            passes: number of draft model passes.
            draft_s: their time in seconds.
            outside_s: time from the last of them to the target's verdict, in seconds.

        """
        self._rounds += 1
        self._passes.append(passes)
        self._outside_s.append(outside_s)
        self._credit_s += _SHARE * (draft_s + outside_s)

    def due(self, text: int) -> int | None:
        """Return the window to compare with the present one now, in a text of so many tokens."""
        if self._rounds < _ROUNDS or self._credit_s < 0:
            return None
        others = [size for size in self.sizes if size != self.size]
        # Both windows contain all of a shorter text, or nearly so.
        able = [size for size in others if text > min(size, self.size) + SCORED]
        return min(able, key=lambda size: self._times_tried[size], default=None)

    def prefers(self, other: int, present: Trial, tried: Trial) -> bool:
        """Learn from a comparison with another window; return whether that one is adopted."""
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
        """Account for the time that a comparison with another window took."""
        self._rounds = 0
        self._credit_s -= seconds * min(_RAREST, max(1, self._losses[other]))

    def _rate(self, chance: float, pass_s: float) -> float:
        """Return expected tokens per second at the usual draft length."""
        passes, sure = _typical(self._passes), min(chance, _SUREST)
        emitted: float = (1 - sure ** (passes + 1)) / (1 - sure)
        return emitted / (_typical(self._outside_s) + passes * pass_s)


def _typical(values: Sequence[float]) -> float:
    return float(median(values)) if values else 1.0
