"""Makes synthetic texts on which a draft is right at a given rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.errors import InputError
from edgedec.records.trace import Choices, Trace

VOCAB = 64
_PROMPT = 8
_SURE, _UNSURE = 0.9, 0.1


def text(right: Sequence[bool], seed: int = 0) -> Trace:
    """Return a trace whose draft's first choice is the target's where ``right`` is True.

    Elsewhere the target's token is the draft's second choice.
    """
    count = len(right)
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCAB, _PROMPT + count).tolist()
    others = (np.array(tokens[_PROMPT:]) + rng.integers(1, VOCAB, count)) % VOCAB
    pairs = list(zip(tokens[_PROMPT:], others.tolist(), strict=True))
    guessed = [pair if hit else pair[::-1] for pair, hit in zip(pairs, right, strict=True)]
    chances = ((_SURE, _UNSURE),) * count
    return Trace(
        name="synthetic",
        temperature=0.0,
        prompt=_PROMPT,
        tokens=tuple(tokens),
        target=Choices(tuple(pairs), chances),
        draft=Choices(tuple(guessed), chances),
    )


def independent(acceptance: float, tokens: int, seed: int = 0) -> list[bool]:
    """Return independent outcomes, right with this probability."""
    return persistent(acceptance, 0.0, tokens, seed)


def persistent(acceptance: float, persistence: float, tokens: int, seed: int = 0) -> list[bool]:
    """Return outcomes right at this rate on average; easy and difficult tokens come in runs.

    Args:
        acceptance: share of right tokens, met as closely as the length allows.
        persistence: correlation of a token with the one before; 0 is independent of it.
        tokens: of the text.
        seed: of what is drawn.

    Raises:
        InputError: a share or a correlation that is none.

    """
    if not (0 <= acceptance <= 1 and 0 <= persistence < 1):
        raise InputError(f"acceptance {acceptance:g}, persistence {persistence:g}: expected 0..1")
    drawn = np.random.default_rng(seed).random(tokens).tolist()

    def share(chance: float) -> float:
        return sum(_chained(drawn, chance, persistence)) / tokens

    return _chained(drawn, _where(share, acceptance), persistence)


def _chained(drawn: Sequence[float], chance: float, persistence: float) -> list[bool]:
    right: list[bool] = []
    before = chance
    for value in drawn:
        right.append(value < persistence * before + (1 - persistence) * chance)
        before = float(right[-1])
    return right


def emitting(per_round: float, draft_length: int, tokens: int, seed: int = 0) -> list[bool]:
    """So that rounds of a chain of ``draft_length`` emit ``per_round`` tokens on average.

    Raises:
        InputError: more than the draft and one token, or less than one.

    """
    if not 1 <= per_round <= draft_length + 1:
        raise InputError(f"{per_round:g} tokens a round: expected 1..{draft_length + 1}")
    drawn = np.random.default_rng(seed).random(tokens).tolist()

    def emitted(chance: float) -> float:
        return tokens_per_round(_chained(drawn, chance, 0.0), draft_length)

    return _chained(drawn, _where(emitted, per_round), 0.0)


def _where(rising: Callable[[float], float], wanted: float) -> float:
    """The chance at which something that rises with it is what is wanted, by bisection.

    What is drawn stays the same, so a higher chance turns wrong tokens right and never back.
    """
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if rising(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def tokens_per_round(right: Sequence[bool], draft_length: int) -> float:
    """Expected tokens of a round that drafts a chain and adds one token of the target's."""
    place = rounds = 0
    while place < len(right):
        accepted = 0
        while accepted < draft_length and place < len(right) and right[place]:
            accepted, place = accepted + 1, place + 1
        place, rounds = place + 1, rounds + 1
    return len(right) / rounds if rounds else 0.0
