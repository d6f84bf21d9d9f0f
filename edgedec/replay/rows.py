"""Rows of logits for a recorded text: the model's own on the text, plausible ones off it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from edgedec.errors import InputError
from edgedec.records.trace import Trace

TARGET, DRAFT = "target", "draft"


class TraceRows:
    """A model's recorded rows after each prefix of a text, and similar ones elsewhere.

    Row i, below ``count``, is after ``tokens[: prompt + i]``, with the token that would be drawn
    first. Drafts after a wrong token are never accepted, so there a row only has to be plausible:
    what the model said the last time after the same token, or the row at the same position with
    other ids.

    Args:
        trace: of a text.
        role: ``target`` or ``draft``.
        vocab_size: ids are below it.

    Raises:
        InputError: the trace has no draft.

    """

    def __init__(self, trace: Trace, role: str, vocab_size: int) -> None:
        choices = trace.target if role == TARGET else trace.draft
        if choices is None:
            raise InputError(f"trace {trace.name!r} has no draft model: record it with one")
        self.tokens = trace.tokens
        self.prompt = trace.prompt
        self.count = len(choices.ids)
        self.vocab_size = vocab_size
        ids = np.array(choices.ids, np.int64)
        if role == TARGET:
            # At a near-tie a recorded row may disagree with the recorded text.
            ids[:, 0] = trace.tokens[trace.prompt : trace.prompt + self.count]
        chances = np.array(choices.probabilities, np.float32)
        # Confidence is the largest probability, whatever order the noise produced.
        logits = np.log(np.maximum(-np.sort(-chances, axis=1), 1e-12))
        self.ids = np.concatenate([ids, (ids + 1) % vocab_size])
        self.logits = np.concatenate([logits, logits])
        self._after: dict[int, list[int]] = {}
        for row in range(1, self.count):
            self._after.setdefault(trace.tokens[trace.prompt + row - 1], []).append(row)

    def right(self, known: int, held: Sequence[int]) -> int:
        """Return how many leading tokens are the text's; the first ``known`` all are."""
        text, end = self.tokens, min(len(held), len(self.tokens))
        while known < end and held[known] == text[known]:
            known += 1
        return known

    def row(self, place: int, token: int, *, right: bool) -> int:
        """Return the row after the token at ``place``; ``right``: all before it are the text's."""
        row = place + 1 - self.prompt
        if right and 0 <= row < self.count:
            return row
        # Never a later row: a drafter that learns from rows must not see the future.
        known = self._after.get(token, ())
        place = bisect_left(known, row)
        return known[place - 1] if place else self.count + min(max(row, 0), self.count - 1)
