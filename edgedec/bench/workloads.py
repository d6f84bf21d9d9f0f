"""Makes prompts to measure on; none is stored in the repository."""

from __future__ import annotations

import random

from edgedec.models.demo.heldout import Prompt, heldout_bodies, heldout_files, heldout_prompts

__all__ = ["Prompt", "heldout_bodies", "heldout_files", "heldout_prompts", "random_prompts"]


def random_prompts(
    count: int, vocab_size: int, *, length: int = 24, seed: int = 0
) -> list[list[int]]:
    """Return prompts of random tokens: text no draft can predict, when sampled hot after them."""
    rng = random.Random(seed)
    return [[rng.randrange(8, vocab_size) for _ in range(length)] for _ in range(count)]
