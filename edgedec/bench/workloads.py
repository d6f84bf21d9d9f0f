"""Makes prompts to measure on; none is stored in the repository."""

from __future__ import annotations

import random

from edgedec.models.demo.heldout import Prompt, heldout_bodies, heldout_files, heldout_prompts
from edgedec.text.tokenizer import Tokenizer

__all__ = [
    "Prompt",
    "heldout_bodies",
    "heldout_files",
    "heldout_prompts",
    "long_text",
    "random_prompts",
]


def random_prompts(
    count: int, vocab_size: int, *, length: int = 24, seed: int = 0
) -> list[list[int]]:
    """Return prompts of random tokens: text no draft can predict, when sampled hot after them."""
    rng = random.Random(seed)
    return [[rng.randrange(8, vocab_size) for _ in range(length)] for _ in range(count)]


def long_text(tokenizer: Tokenizer, count: int) -> list[int]:
    """Return ``count`` tokens of held-out code."""
    tokens: list[int] = []
    for prompt in heldout_prompts(1000):
        tokens += tokenizer.encode(prompt.text)
        if len(tokens) >= count:
            break
    return (tokens * (count // max(1, len(tokens)) + 1))[:count]
