"""Measures a model's perplexity on held-out text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.bench.workloads import heldout_files
from edgedec.decoding.session import Model
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError
from edgedec.text.tokenizer import Tokenizer

_ROWS = 32


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


def perplexity(model: Model, tokens: Sequence[int], window: int = 512) -> float:
    """Return exp of the mean negative log likelihood of every token but each window's first.

    Windows follow one another, each read from an empty cache.
    """
    losses: list[float] = []
    session = model.open(window)
    try:
        for start in range(0, len(tokens) - 1, window):
            session.rollback(0)
            part = tokens[start : start + window]
            for first in range(0, len(part) - 1, _ROWS):
                tree = TokenTree.chain(part[first : first + _ROWS])
                logits = session.forward(tree).logits
                assert logits is not None
                following = part[first + 1 : first + 1 + len(tree)]
                losses += _losses(logits[: len(following)], following)
                session.commit(list(range(len(tree))))
    finally:
        session.close()
    return float(np.exp(np.mean(losses)))


def _losses(logits: np.ndarray, following: Sequence[int]) -> list[float]:
    rows = logits.astype(np.float64)
    best = rows.max(axis=1)
    chosen = rows[np.arange(len(following)), np.asarray(following)]
    losses: list[float] = (
        np.log(np.exp(rows - best[:, None]).sum(axis=1)) + best - chosen
    ).tolist()
    return losses
