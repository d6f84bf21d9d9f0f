"""Measures a model's perplexity on held-out text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from edgedec.bench.race._child import WINDOW, Tools
from edgedec.bench.workloads import heldout_files
from edgedec.decoding.session import Model
from edgedec.decoding.tree import FloatArray, TokenTree
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


def perplexity(model: Model, tokens: Sequence[int]) -> float:
    """Return a model's perplexity, see ``Tools.perplexity``; some rows at a time are in memory."""

    def rows(part: Sequence[int]) -> Iterator[FloatArray]:
        session.rollback(0)
        for first in range(0, len(part) - 1, _ROWS):
            tree = TokenTree.chain(part[first : first + _ROWS])
            logits = session.forward(tree).logits
            assert logits is not None
            yield from logits
            session.commit(list(range(len(tree))))

    with closing(model.open(WINDOW)) as session:
        return Tools().perplexity(tokens, rows)
