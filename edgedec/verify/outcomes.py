"""Compares two generations of one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.decoding.constraint import Constraint
from edgedec.decoding.emission import Emission
from edgedec.decoding.prefill import shared_length
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import Generation
from edgedec.verify.near_ties import NearTies


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first place where two generations of a prompt differ.

    Attributes:
        case: the text's options: ``greedy``, ``sampled`` or a case of the matrix.
        way: name of the other side's configuration.
        what: ``tokens``, ``text``, ``finish_reason``, ``logprobs``, or ``ending`` if plain decoding
            itself did not end as it must.
        position: number of tokens before it.
        plain, speculative: the two sides' values there: a token id, None if that text had ended; a
            log-probability; a finish reason.
        gap: the distance of the two. For tokens, the smallest change of gaps between logits that
            makes plain decoding choose the other one; for log-probabilities, their difference. None
            if no number explains it.
        tolerance: how much of that the width of a pass may change.
        near_tie: tokens differ, and ``gap <= tolerance``.

    """

    case: str
    way: str
    prompt: str
    what: str
    position: int
    plain: int | float | str | None
    speculative: int | float | str | None
    gap: float | None = None
    tolerance: float | None = None
    near_tie: bool = False


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """A decoded request.

    Attributes:
        case, way, prompt: names, for the divergence.
        number: the prompt's index.
        constraint: of the text, in its initial state, which is not changed; None allows all.

    """

    case: str
    way: str
    prompt: str
    number: int
    tokens: Sequence[int]
    params: SamplingParams
    constraint: Constraint | None = None


def same(plain: Generation, other: Generation) -> bool:
    """Return whether tokens, text, its pieces, finish reason and log-probabilities are equal."""
    return (plain.text, plain.finish_reason) == (other.text, other.finish_reason) and [
        _compared(event) for event in plain.events
    ] == [_compared(event) for event in other.events]


def divergence(
    asked: DecodedRequest, plain: Generation, other: Generation, ties: NearTies
) -> FirstDifference | None:
    """Return the first relevant difference; None if log-probabilities differ only by rounding."""

    def found(
        what: str, position: int, one: object, two: object, **more: object
    ) -> FirstDifference:
        names = (asked.case, asked.way, asked.prompt)
        return FirstDifference(*names, what, position, one, two, **more)  # type: ignore[arg-type]

    ours, theirs = plain.token_ids, other.token_ids
    index = shared_length(ours, theirs)
    bounds = _bounds(asked, plain, ties)
    for position in range(index):
        one, two = plain.events[position], other.events[position]
        # The last token's text may be released only at the end of the text.
        if one.text != two.text and position + 1 < min(len(ours), len(theirs)):
            return found("text", position, one.text, two.text)
        bound = float(bounds[position])
        numbers = _furthest(one, two, bound)
        if numbers is not None:
            gap = abs(numbers[0] - numbers[1])
            return found("logprobs", position, *numbers, gap=gap, tolerance=bound)
    if index < min(len(ours), len(theirs)):
        tokens = ours[index], theirs[index]
        gap_ = ties.gap(asked.params, asked.tokens, ours[:index], tokens, asked.constraint)
        tolerance = ties.tolerance(asked.number, ours[: index + 1], asked.constraint)
        near = gap_ is not None and gap_ <= tolerance
        return found("tokens", index, *tokens, gap=gap_, tolerance=tolerance, near_tie=near)
    if len(ours) != len(theirs):
        ends = (text[index] if index < len(text) else None for text in (ours, theirs))
        return found("tokens", index, *ends)
    if plain.finish_reason != other.finish_reason:
        return found("finish_reason", index, plain.finish_reason, other.finish_reason)
    if plain.text != other.text:
        return found("text", index, plain.text[-40:], other.text[-40:])
    return None


def _compared(event: Emission) -> tuple[object, ...]:
    """Return all fields of a token except the drafter that proposed it."""
    return event.token, event.text, event.logprob, event.top_logprobs


def _bounds(asked: DecodedRequest, plain: Generation, ties: NearTies) -> Sequence[float]:
    """Return how far log-probabilities may differ at each token; measured only if needed."""
    if all(event.logprob is None for event in plain.events):
        return [0.0] * len(plain.events)
    bounds: list[float] = ties.logprob_tolerances(asked.number, plain.token_ids).tolist()
    return bounds


def _furthest(one: Emission, two: Emission, bound: float) -> tuple[float, float] | None:
    """Return the two log-probabilities that differ most, if by more than ``bound``.

    The likeliest tokens are compared by rank and by id; a token that only one side lists must
    nearly have been listed by the other.
    """
    if one.logprob is None or two.logprob is None:
        return None if one.logprob is two.logprob else (one.logprob or 0.0, two.logprob or 0.0)
    ours, theirs = one.top_logprobs or [], two.top_logprobs or []
    if len(ours) != len(theirs):
        return float(len(ours)), float(len(theirs))
    pairs = [(one.logprob, two.logprob)]
    pairs += [(a, b) for (_, a), (_, b) in zip(ours, theirs, strict=True)]
    known = dict(theirs)
    pairs += [(value, known.get(token, theirs[-1][1])) for token, value in ours]
    return next((pair for pair in pairs if not abs(pair[0] - pair[1]) <= bound), None)
