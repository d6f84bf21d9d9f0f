"""A draft session of another vocabulary, behind an interface in the target's tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from typing import BinaryIO

import numpy as np

from edgedec.decoding import snapshot
from edgedec.decoding.drafting._transcript import Transcript, TranscriptPlan, of_all
from edgedec.decoding.prefill import RIDE_ALONG
from edgedec.decoding.session import Capabilities, OnChunk, Pass, Session, Trimmable, Want
from edgedec.decoding.session_base import SnapshotSession
from edgedec.decoding.translation import OUTSIDE, Translation
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import SnapshotError

_MOST_STATE = 1 << 26
# The underlying draft session refuses what it cannot do.
_CAPABILITIES = Capabilities(snapshot=True)


def translated(session: Session, translation: Translation | None) -> tuple[Session, int]:
    """Return a session that takes the target's tokens, and the width of a tree that always fits.

    It is ``session`` itself if no translation is needed.
    """
    if translation is None or translation.untouched:
        return session, session.capacity
    speaking = TranslatedSession(session, translation)
    return speaking, speaking.widest


class TranslatedSession(SnapshotSession):
    """Token-level intersection (TLI): the same ``Session`` protocol over another vocabulary.

    A row of logits has the target's columns; tokens missing from the draft's vocabulary hold
    ``-inf``, so that a softmax renormalises over the common ones. In a ``TOP`` pass only the
    draft's own ``top_k`` ids are mapped, never a row; those missing from the target's vocabulary
    are left out, and the last columns hold ``-inf``. If none is left, every column holds the same
    logit, a uniform distribution.

    A node that ends inside a draft token has the row of the last whole one before it. This occurs
    only in existing text, since drafted tokens are common.

    Args:
        session: empty, of the draft model; owned by this session from now on.
        translation: between its vocabulary and the target's.

    Attributes:
        inner: the session of the draft model.
        text: what it holds, in both vocabularies.

    """

    runtime = "translated"

    def __init__(self, session: Session, translation: Translation) -> None:
        # As many target tokens fit; if a text takes more draft tokens, only its end is held.
        super().__init__(session.capacity, translation.target_columns, _CAPABILITIES)
        self.inner = session
        self._translation = translation
        self.text = Transcript(session, translation)
        self._columns = _Columns(translation)
        # The draft's own tree, where each of the caller's nodes ends in it, and whether a draft
        # token also ends there.
        self._own = TokenTree(0)
        self._indices: list[int] = []
        self._exact: list[bool] = []
        self._plan = TranscriptPlan(0, 0, 0, [], [])

    @property
    def widest(self) -> int:
        """Nodes of a tree that fit after any text."""
        return self.text.margin

    # -- generating in the draft's own tokens -----------------------------------------------------

    def start(self, new: Sequence[int], spare: int) -> list[int]:
        """Begin a text that follows ``new``; return the first draft tokens to compute in ``inner``.

        Args:
            new: target tokens after those held, at least one.
            spare: draft tokens that will follow at most.

        """
        plan = self._plan = self.text.plan(new, anew=True, spare=spare)
        early = len(plan.feed) - 1 if len(plan.feed) > RIDE_ALONG else 0
        base = self.inner.length
        try:
            self.inner.prefill(plan.feed[:early])
        finally:
            self.text.held += plan.feed[: self.inner.length - base]
        return plan.feed[early:]

    def finish(self, new: Sequence[int], computed: Sequence[int]) -> None:
        """Keep ``new`` and what was computed since ``start``, all of it in the draft's tokens."""
        text, plan = self.text, self._plan
        self.inner.commit(range(len(computed)))
        text.held += computed
        before = max(0, len(text.tokens) - plan.anchor)
        text.record(plan, new, of_all(plan.ends, before + len(new)))
        self._length = len(text.tokens)

    # -- the session's protocol -------------------------------------------------------------------

    def trim(self) -> None:
        if isinstance(self.inner, Trimmable):
            self.inner.trim()

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        if not tokens:
            return
        try:
            self.text.prefill(tokens, on_chunk)
        finally:
            self._length = len(self.text.tokens)

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        if start == 0:
            self._begin(tree)
        # Pending nodes of the draft's own tree.
        first = start and 1 + max(self._indices[:start])
        self._attach(tree)
        scored = self.inner.forward(self._own, first, want)
        indices = [max(0, index - scored.start) for index in self._indices[start:]]
        full = None
        if want & Want.LOGITS and scored.logits is not None:
            full = self._columns.full(scored.logits, indices)
        return Pass(start, *self._columns.top(scored, indices), full)

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        text, plan, own = self.text, self._plan, self._own
        ends = plan.ends[: max(0, len(text.tokens) - plan.anchor)]
        ends += [
            plan.keep + own.depths[self._indices[node]] + 1 if self._exact[node] else OUTSIDE
            for node in path
        ]
        whole = max([plan.keep, *ends]) if path else plan.keep
        nodes = own.path_to(self._indices[path[-1]])[: whole - plan.keep] if path else []
        self.inner.commit(nodes)
        text.held += own.tokens_on(nodes)
        text.record(plan, tree.tokens_on(path), ends)

    def rollback(self, length: int) -> None:
        super().rollback(length)
        self._length = len(self.text.tokens)  # an exception may have left fewer

    def _cut(self, length: int) -> None:
        text = self.text
        text.settle()
        text.cut(min(length, len(text.tokens)))

    def _copy(self, length: int) -> TranslatedSession:
        text = self.text
        other = TranslatedSession(self.inner.fork(len(text.held)), self._translation)
        other.text = text.copy(other.inner)
        other.text.cut(length)
        return other

    def save(self, file: BinaryIO) -> None:
        super().save(file)
        self.inner.save(file)

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        state = _parsed(payload, length, self._translation)
        self.inner.load(rest)
        if len(state[1]) != self.inner.length:  # a state that was tampered with
            self.inner.rollback(0)
            state = [[], [], [0]]
        self.text.restore(state)
        return len(state[0])

    def _fingerprint(self) -> str:
        return self._translation.fingerprint

    def _state(self) -> snapshot.Payload:
        return [json.dumps(self.text.state()).encode()]

    def _most_bytes(self) -> int:
        return _MOST_STATE

    def interrupt(self) -> None:
        self.inner.interrupt()

    def _release(self) -> None:
        self.inner.close()

    def _begin(self, tree: TokenTree) -> None:
        """Plan the text up to the last node before the first branch."""
        spine = tree.tokens if tree.is_chain else tree.tokens[:1]
        plan = self._plan = self.text.plan(spine, rows=True, spare=len(tree) - len(spine))
        self._own = TokenTree.chain(plan.feed)
        last = len(plan.feed) - 1
        before = max(0, len(self.text.tokens) - plan.anchor)
        ends = of_all(plan.ends[before:], len(spine))
        self._indices, self._exact = [], []
        index = 0
        for end in ends:
            exact = plan.keep < end != OUTSIDE
            index = min(end - plan.keep - 1, last) if exact else index
            self._indices.append(index)
            self._exact.append(exact)
        # A special token at the end spells nothing, so what follows it follows the text.
        self._indices[-1] = last

    def _attach(self, tree: TokenTree) -> None:
        """Append the nodes that the draft's own tree lacks."""
        own = self._own
        for node in range(len(self._indices), len(tree)):
            index = self._indices[tree.parents[node]]
            for token in self.text.pieces(tree.tokens[node]):
                index = own.add(token, index)
            self._indices.append(index)
            # Below a node that ends inside a draft token, the tokenisation is wrong.
            self._exact.append(self._exact[tree.parents[node]])


def _parsed(payload: bytearray, length: int, translation: Translation) -> list[list[int]]:
    """Parse tokens, draft tokens and marks of a saved state."""
    try:
        tokens, held, marks = json.loads(payload)
        fits = len(marks) - 1 == len(tokens) == length and marks[0] == 0
        limits = (
            (tokens, 0, translation.target_columns - 1),
            (held, 0, translation.draft_columns - 1),
            (marks, OUTSIDE, len(held)),
        )
        fits = fits and all(
            isinstance(value, int) and low <= value <= high
            for values, low, high in limits
            for value in values
        )
    except (ValueError, TypeError, RecursionError):
        fits = False
    if not fits:
        raise SnapshotError("the saved state is damaged: save it again")
    return [tokens, held, marks]


class _Columns:
    """Maps rows of the draft's logits to the target's columns."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        # Eight ids per row are faster to look up one by one than in an array.
        self._to_target: list[int] = translation.to_target.tolist()
        self._buffer: FloatArray = np.empty((0, translation.target_columns), dtype=np.float32)

    def top(self, scored: Pass, indices: list[int]) -> tuple[IntArray, FloatArray]:
        """Return the best ids and logits of the draft's rows ``indices``, as the target's ids."""
        ids, logits = scored.top_ids.tolist(), scored.top_logits.tolist()
        rows = [self._best(ids[index], logits[index]) for index in indices]
        return (
            np.array([row[0] for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.float32),
        )

    def full(self, logits: FloatArray, indices: list[int]) -> FloatArray:
        """Return the draft's rows with the target's columns, ``[len(indices), columns]``."""
        known = self._translation
        if known.same and known.draft_columns >= known.target_columns and _whole_range(indices):
            return logits[indices[0] : indices[0] + len(indices), : known.target_columns]
        source, mask = known.columns
        if len(self._buffer) < len(indices):
            self._buffer = np.full((len(indices), len(source)), -np.inf, dtype=np.float32)
        rows = self._buffer[: len(indices)]
        if known.same:  # ids beyond the draft's stay as they are
            rows[:, : logits.shape[1]] = logits[indices, : rows.shape[1]]
            return rows
        for row, index in zip(rows, indices, strict=True):
            # "clip" lets numpy write straight into the row; no index is out of range.
            np.take(logits[index], source, out=row, mode="clip")
            row += mask
        return rows

    def _best(self, ids: list[int], logits: list[float]) -> tuple[list[int], list[float]]:
        names = self._to_target
        mapped = [names[id] for id in ids]
        if OUTSIDE in mapped:
            width = len(ids)
            known = [pair for pair in zip(mapped, logits, strict=True) if pair[0] != OUTSIDE]
            if not known:
                common = self._translation.target_ids
                return common[np.arange(width) % len(common)].tolist(), [logits[0]] * width
            spare = width - len(known)
            mapped = [id for id, _ in known] + [0] * spare
            logits = [logit for _, logit in known] + [-inf] * spare
        if len(set(logits)) < len(logits):  # equal logits are ordered by the target's ids
            pairs = sorted((-logit, id) for id, logit in zip(mapped, logits, strict=True))
            return [id for _, id in pairs], [-logit for logit, _ in pairs]
        return mapped, logits


def _whole_range(indices: list[int]) -> bool:
    return indices == list(range(indices[0], indices[0] + len(indices)))
