"""How many rows a pass gets, so that a row's numbers do not depend on the rows beside it.

Matrix kernels have a variant for a row that is left alone: it adds in another order, so the
same token gets other low bits (and, where activations are quantised, other digits) in a pass
of 1 row than in one of 5. A padded pass never leaves a row alone. Which padding is enough
depends on the kernels of this machine and the weights' format, so it is tried, not assumed.

What is promised holds for chains. In a branching tree a token's ancestors stand in other
slots than they will have in the text, and the softmax over them adds in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray

_PROMPT_TOKENS = 11
# How a text of so many tokens is cut into passes. What fails most often comes first.
_TEXT_TOKENS = 9
_CUTS: Sequence[Sequence[int]] = ((8, 1), (2, 7), (4, 5), (1, 1, 1, 1, 1, 1, 3))
PROBE_SLOTS = 32

Rows = tuple[FloatArray, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Padding:
    """A rule for the number of rows.

    Attributes:
        name: for reports.
        multiple: rows are a multiple of this.
        never_one_over: and never one more than a multiple of this (0: no such rule). Kernels
            work on blocks of rows; one over leaves a row alone.
        attention_only: rows are added for attention, and for nothing else.

    """

    name: str
    multiple: int = 1
    never_one_over: int = 0
    attention_only: bool = False

    @property
    def slack(self) -> int:
        """Rows that may be added at most."""
        return max(self.multiple - 1, 1 if self.never_one_over else 0)

    def rows(self, count: int) -> int:
        """Rows of a pass over ``count`` nodes, at its widest."""
        if self.never_one_over and count % self.never_one_over == 1:
            return count + 1
        return -(-count // self.multiple) * self.multiple

    def pad(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens, the last one repeated until there are enough."""
        if self.attention_only:
            return tokens
        more = self.rows(len(tokens)) - len(tokens)
        return [*tokens, *[tokens[-1]] * more] if more else tokens


NO_PADDING = Padding("none")
# Cheapest first.
PADDINGS = (
    NO_PADDING,
    Padding("no lone row in attention", never_one_over=16, attention_only=True),
    Padding("no lone row", never_one_over=16),
    Padding("even", multiple=2),
    Padding("multiple of 4", multiple=4),
)
# Those that nobody has to ask for.
CHEAP_PADDINGS = PADDINGS[:2]

Run = Callable[[Padding, Sequence[int], int], Rows]


def find_padding(
    run: Run, vocab_size: int, paddings: Sequence[Padding] = PADDINGS
) -> Padding | None:
    """The first padding under which the same tokens give the same bits, however cut.

    Args:
        run: ``run(padding, tokens, past)`` is a padded pass over one cache; it returns the
            logits and what was written to the cache, a row a token.
        vocab_size: of the model.
        paddings: to try, cheapest first.

    """
    rng = np.random.default_rng(0)
    prompt = [int(t) for t in rng.integers(0, vocab_size, _PROMPT_TOKENS)]
    text = [int(t) for t in rng.integers(0, vocab_size, _TEXT_TOKENS)]
    run(NO_PADDING, prompt, 0)
    return next((p for p in paddings if _holds(run, p, text)), None)


def _holds(run: Run, padding: Padding, text: Sequence[int]) -> bool:
    whole = run(padding, text, _PROMPT_TOKENS)
    for cut in _CUTS:
        for start, end in _spans(cut):
            part = run(padding, text[start:end], _PROMPT_TOKENS + start)
            if not all(
                np.array_equal(got, expected[start:end])
                for got, expected in zip(part, whole, strict=True)
            ):
                return False
    return True


def _spans(cut: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for width in cut:
        yield start, start + width
        start += width
