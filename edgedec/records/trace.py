"""Traces: a pair's outputs on a text, recorded once, enough to replay any drafter.

A drafted token counts only while every token before it was right, so the draft's choices after each
prefix of the target's own text determine what any drafter, length or tree would have had accepted,
without running either model again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choices:
    """A model's first choices after each token of a text, best first.

    With a temperature the order is that of log p plus the seed's noise, which decides the draw; the
    probabilities are without noise.

    Attributes:
        ids: ``[tokens, k]``; row i is after ``tokens[:prompt + i]``.
        probabilities: theirs, ``[tokens, k]``.

    """

    ids: tuple[tuple[int, ...], ...]
    probabilities: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and what the target wrote after it.

    Attributes:
        name: of the prompt.
        temperature: it was written with; 0 is greedy.
        prompt: number of ``tokens`` that are the prompt.
        tokens: prompt and text.
        target: the target's choices after ``tokens[: prompt + i]``; the first of row i is
            token ``prompt + i``.
        draft: the draft's at the same places; None without a draft model.

    """

    name: str
    temperature: float
    prompt: int
    tokens: tuple[int, ...]
    target: Choices
    draft: Choices | None
