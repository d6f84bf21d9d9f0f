"""Emitted tokens, with their text, source and log probabilities."""

from __future__ import annotations

from typing import NamedTuple

TopLogprobs = list[tuple[int, float]]


class Emission(NamedTuple):
    """One emitted token.

    Attributes:
        token: its id.
        text: the text that this token completes; may be empty, never part of a character.
        source: ``"draft"`` when a drafted token was accepted, ``"forced"`` when a constraint left
            no choice and no pass was needed, else ``"target"``.
        logprob: log p of the token under the target's own distribution (temperature 1,
            before bias and penalties); None unless requested.
        top_logprobs: the most likely tokens of the same row with their log p, best first; None
            unless requested.
        thinking: the text that this token adds to the thinking before an answer; None if it is not
            part of it.
    """

    token: int
    text: str
    source: str
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None
    thinking: str | None = None
