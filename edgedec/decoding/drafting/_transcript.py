"""The target's tokens as a draft session caches them, re-tokenised in the draft's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.decoding.prefill import go_back
from edgedec.decoding.session import OnChunk, Session
from edgedec.decoding.translation import OUTSIDE, Translation

# How far back, in the target's tokens, a re-tokenised tail may begin.
_FURTHEST = 48
_MARGIN = 64


@dataclass(slots=True)
class TranscriptPlan:
    """The tokens to compute so that the session holds a text and its continuation.

    Attributes:
        anchor: number of target tokens whose tokenisation is kept.
        base: how many draft tokens spell those; 0 also if the beginning is left out.
        keep: number of draft tokens kept in the session.
        feed: the draft tokens that follow them.
        ends: for the target tokens from ``anchor`` on, including new ones, how many draft tokens
            spell the text up to their end; ``OUTSIDE`` inside one.

    """

    anchor: int
    base: int
    keep: int
    feed: list[int]
    ends: list[int]


class Transcript:
    """A text with two lengths: in target tokens, and in the session's draft tokens.

    A token that both vocabularies have is appended as it is. After any other, the text is tokenised
    again by the draft's tokenizer, from the start of a word before it; the part of the result that
    the session already holds is kept.

    ``_marks[i]`` is how many draft tokens spell the first i target tokens, or ``OUTSIDE`` if that
    is not a whole number of those in the session.

    Attributes:
        session: of the draft's tokens.
        tokens: the text, in the target's.
        held: the session's committed tokens, in the draft's.

    """

    def __init__(self, session: Session, translation: Translation) -> None:
        self.session = session
        self.tokens: list[int] = []
        self.held: list[int] = []
        self._marks: list[int] = [0]
        self._translation = translation
        self._to_draft: list[int] = translation.to_draft.tolist()

    @property
    def margin(self) -> int:
        """Number of draft tokens that fit after any text."""
        return min(_MARGIN, self.session.capacity // 2)

    def plan(
        self,
        new: Sequence[int],
        *,
        anew: bool = False,
        rows: bool = False,
        spare: int = 0,
    ) -> TranscriptPlan:
        """Prepare to compute ``new`` after the text; the session goes back as far as needed.

        Args:
            new: target tokens.
            anew: tokenise the tail again even if all its tokens are common.
            rows: the logits row of each new token is needed, so each is computed again.
            spare: draft tokens that must fit as well. Only the end of a text too long for the
                session is kept.

        """
        known, held = len(self.tokens), len(self.held)
        if not anew and known and self._marks[-1] == held:
            ids = [self._to_draft[token] for token in new]
            if ids and min(ids) != OUTSIDE and held + len(ids) <= self._room(held - known, spare):
                ends = list(range(held + 1, held + len(ids) + 1))
                return TranscriptPlan(known, held, held, ids, ends)
        anchor, base, ids, ends = self._written(new, spare)
        shared = 0
        for mine, theirs in zip(self.held[base:], ids, strict=False):
            if mine != theirs:
                break
            shared += 1
        # The last token is always computed, since the pass is for its row.
        wanted = [base + len(ids), *(ends[len(self.tokens) - anchor :] if rows else [])]
        keep = min(base + shared, *(max(0, end - 1) for end in wanted if end != OUTSIDE))
        before = self._rewind(keep)
        keep = len(self.held)
        feed = before[: max(0, base - keep)] + ids[max(0, keep - base) :]
        return TranscriptPlan(anchor, base, keep, feed or [self._translation.blank], ends)

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Commit ``tokens`` after the text, re-tokenised; see ``Session.prefill``."""
        plan = self.plan(tokens, anew=True)
        before = max(0, len(self.tokens) - plan.anchor)
        ends = of_all(plan.ends[before:], len(tokens))

        def chunk(count: int, total: int) -> None:
            if on_chunk is not None:
                ready = len(tokens) if count == total else _whole(ends, plan.keep + count)
                on_chunk(ready, len(tokens))

        base = self.session.length
        try:
            self.session.prefill(plan.feed, chunk)
        finally:
            # If interrupted between chunks, the chunks computed so far stay.
            done = self.session.length - base
            self.held += plan.feed[:done]
            kept = len(tokens) if done == len(plan.feed) else _whole(ends, len(self.held))
            self.record(plan, tokens[:kept], [*plan.ends[:before], *ends[:kept]])

    def pieces(self, token: int) -> list[int]:
        """Return the draft tokens that stand for a single target token, at least one."""
        common = self._to_draft[token]
        if common != OUTSIDE:
            return [common]
        ids, _ = self._translation.speller.spell([token], first=False)
        return ids or [self._translation.blank]

    def record(self, plan: TranscriptPlan, tokens: Sequence[int], ends: Sequence[int]) -> None:
        """Record that the session has committed a plan, or the beginning of it.

        Args:
            plan: of this text; ``held`` has grown by what was committed since.
            tokens: target tokens that now follow the text.
            ends: as in the plan, for the target tokens from its anchor to the last of these, or
                from the first of these if the anchor is among them.

        """
        marks, limit, anchor = self._marks, len(self.held), plan.anchor
        del marks[min(anchor, len(self.tokens)) + 1 :]
        self.tokens += tokens
        marks += [end if end <= limit else OUTSIDE for end in ends]
        if anchor < len(marks) and plan.base <= limit:
            marks[anchor] = plan.base

    def cut(self, length: int) -> None:
        """Go back to the first ``length`` target tokens."""
        del self.tokens[length:]
        del self._marks[length + 1 :]
        self._rewind(self._marks[self._last_mark()])

    def settle(self) -> None:
        """Drop pending nodes, and anything an exception left unfinished."""
        del self.tokens[len(self._marks) - 1 :]
        del self._marks[len(self.tokens) + 1 :]
        self._rewind(min(len(self.held), self.session.length), pending=True)

    def copy(self, session: Session) -> Transcript:
        """Return the same text for a session with the same contents."""
        other = Transcript(session, self._translation)
        other.tokens, other.held = self.tokens[:], self.held[:]
        other._marks = self._marks[:]
        return other

    def state(self) -> list[list[int]]:
        """Return the state to save in addition to the session's."""
        return [self.tokens, self.held, self._marks]

    def restore(self, state: list[list[int]]) -> None:
        """Restore what ``state`` returned, with a session in the same state."""
        self.tokens, self.held, self._marks = state

    def _room(self, surplus: int, spare: int) -> int:
        """Return how many draft tokens may spell a text of ``surplus`` fewer target tokens."""
        return self.session.capacity - (max(spare, self.margin) if surplus > 0 else spare)

    def _written(self, new: Sequence[int], spare: int) -> tuple[int, int, list[int], list[int]]:
        """Return the re-tokenised tail: anchor, draft tokens before it, ids, ends."""
        spell, text = self._translation.speller.spell, [*self.tokens, *new]
        anchor = self._anchor(new)
        base = self._marks[anchor]
        ids, ends = spell(text[anchor:], first=base == 0)
        room = shown = self._room(base + len(ids) - len(text), spare)
        while base + len(ids) > room and shown > 0:
            # The draft may see less of the text than the target: half of what fits, or less.
            shown //= 2
            anchor, base = max(0, len(text) - max(1, shown)), 0
            ids, ends = spell(text[anchor:], first=True)
            self._marks[1:] = [OUTSIDE] * (len(self._marks) - 1)
        if base + len(ids) > max(1, room):  # a single token longer than the room
            ids = ids[-max(1, room) :]
            ends = [*([OUTSIDE] * (len(ends) - 1)), len(ids)]
        return anchor, base, ids, [end + base if end != OUTSIDE else OUTSIDE for end in ends]

    def _anchor(self, new: Sequence[int]) -> int:
        """Return the last word start that is also the end of a draft token."""
        last = self._last_mark()
        starts, marks = self._translation.word_starts, self._marks
        text = self.tokens
        for index in range(last, max(-1, last - _FURTHEST), -1):
            if marks[index] == OUTSIDE:
                continue
            token = text[index] if index < len(text) else new[0] if new else None
            if index == 0 or (token is not None and starts[token]):
                return index
        return last

    def _last_mark(self) -> int:
        """Return the last position of the text that falls on the end of a held draft token."""
        marks = self._marks
        index = len(marks) - 1
        while marks[index] == OUTSIDE and index:
            index -= 1
        return index

    def _rewind(self, length: int, *, pending: bool = False) -> list[int]:
        """Go back to at most ``length`` draft tokens; return those removed."""
        if length < self.session.length or pending:
            length = go_back(self.session, length)
        gone = self.held[length:]
        del self.held[length:]
        marks = self._marks
        index = len(marks) - 1
        while index > 0 and (marks[index] == OUTSIDE or marks[index] > length):
            marks[index] = OUTSIDE
            index -= 1
        return gone


def of_all(ends: list[int], count: int) -> list[int]:
    """Return one end for each of ``count`` tokens, the first of which may have been left out."""
    return [OUTSIDE] * (count - len(ends)) + ends


def _whole(ends: Sequence[int], held: int) -> int:
    """Return how many tokens the session holds completely."""
    return max((i + 1 for i, end in enumerate(ends) if OUTSIDE < end <= held), default=0)
