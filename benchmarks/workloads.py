"""Texts to measure on, which are not stored in the repository, and perplexity on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.race._child import WINDOW, Tools
from edgedec.decoding.session import Model
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError
from edgedec.models.demo.heldout import heldout_files, heldout_prompts
from edgedec.text.tokenizer import Tokenizer

_ROWS = 32


def random_prompts(
    count: int, vocab_size: int, *, length: int = 24, seed: int = 0
) -> list[list[int]]:
    """Return prompts of random tokens, after which no draft predicts text of high temperature."""
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


def heldout_tokens(tokenizer: Tokenizer, count: int) -> list[int]:
    """Return the first tokens of held-out source files, an equal share of each."""
    files = heldout_files()
    share = -(-count // max(1, len(files)))
    tokens: list[int] = []
    for file in files:
        tokens += tokenizer.encode(file.read_text("utf-8", errors="replace")[: 20 * share])[:share]
    if len(tokens) < count:
        raise InputError(f"held-out text has {len(tokens)} tokens, expected {count} or more")
    return tokens[:count]


def perplexity(model: Model, tokens: Sequence[int]) -> float:
    """Return a model's perplexity, see ``Tools.perplexity``; some rows at a time are in memory."""
    with _reading(model) as rows:
        return Tools().perplexity(tokens, rows)


def divergence(model: Model, tokens: Sequence[int], source: Path) -> dict[str, Any]:
    """Return a model's divergence from its source, see ``Tools.divergence``."""
    with _reading(model) as rows:
        return Tools().divergence(tokens, source, rows)


@contextmanager
def _reading(model: Model) -> Iterator[Callable[[Sequence[int]], Iterator[FloatArray]]]:
    """Open a session; what it gives reads a window from an empty cache and yields its rows."""

    def rows(part: Sequence[int]) -> Iterator[FloatArray]:
        session.rollback(0)
        for first in range(0, len(part) - 1, _ROWS):
            tree = TokenTree.chain(part[first : first + _ROWS])
            logits = session.forward(tree).logits
            assert logits is not None
            yield from logits
            session.commit(list(range(len(tree))))

    with closing(model.open(WINDOW)) as session:
        yield rows
