"""Pads passes so that a row's bits do not depend on the other rows of its pass.

Matrix kernels have a variant for a single remaining row that adds in another order, so the same
token gets other low bits (and, if activations are quantised, other digits) in a pass of 1 row than
in one of 5. A padded pass never leaves a single row. Which padding suffices depends on this
machine's kernels and the weights' format, so it is tested, not assumed.

The guarantee is for chains. In a branching tree a token's ancestors have other slots than they will
have in the text, and the softmax over them adds in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes.onnx.known import KnownOutcomes

PROBE_SLOTS = 32
# As ``KnownOutcomes`` has them.
KIND = "paddings"
_NONE = "nothing holds"

Rows = tuple[FloatArray, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Probe:
    """A text that is computed whole and in parts.

    Attributes:
        prompt: tokens before it.
        text: its tokens.
        parts: of it, ``(start, width)``, that are compared with the whole. Where each of them
            agrees, so does every text that is cut into such parts. A part overwrites the cache
            from its start on, so they come from the end; a lone row, the likeliest failure,
            comes first.

    """

    prompt: int
    text: int
    parts: tuple[tuple[int, int], ...]


PROBE = Probe(11, 9, ((8, 1), (6, 3), (5, 1), (4, 1), (4, 5), (3, 1), (2, 1), (2, 7), (1, 1),
                      (0, 1), (0, 2), (0, 4), (0, 8)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Padding:
    """A rule for the number of rows.

    Attributes:
        name: for reports.
        multiple: rows are a multiple of this.
        never_one_over: and never one more than a multiple of this (0: no such rule). Kernels work
            on blocks of rows; one more leaves a single row.
        attention_only: rows are added for attention, and for nothing else.

    """

    name: str
    multiple: int = 1
    never_one_over: int = 0
    attention_only: bool = False

    @property
    def slack(self) -> int:
        """Most rows added."""
        return max(self.multiple - 1, 1 if self.never_one_over else 0)

    def rows(self, count: int) -> int:
        """Return the rows of a pass over ``count`` nodes, including padding."""
        if self.never_one_over and count % self.never_one_over == 1:
            return count + 1
        return -(-count // self.multiple) * self.multiple

    def pad(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens, with the last one repeated as padding."""
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
# Those that are used without being asked for on a model of fewer bytes than this. On a larger one a
# padded row takes about 1.1 times as long, and the draft that fills the padding gains as much.
CHEAP_PADDINGS = PADDINGS[:2]
LARGE_BYTES = 200_000_000

Run = Callable[[Padding, Sequence[int], int], Rows]


def find_padding(
    run: Run, vocab_size: int, paddings: Sequence[Padding] = PADDINGS, probe: Probe = PROBE
) -> Padding | None:
    """Return the first padding under which the same tokens give the same bits, however cut.

    Args:
        run: ``run(padding, tokens, past)`` is a padded pass over one cache; it returns the
            logits and what was written to the cache, a row a token.
        vocab_size: of the model.
        paddings: to try, cheapest first.
        probe: what is computed.

    """
    rng = np.random.default_rng(0)
    prompt = [int(t) for t in rng.integers(0, vocab_size, probe.prompt)]
    text = [int(t) for t in rng.integers(0, vocab_size, probe.text)]
    run(NO_PADDING, prompt, 0)

    def agrees(padding: Padding, whole: Rows, start: int, width: int) -> bool:
        part = slice(start, start + width)
        rows = run(padding, text[part], probe.prompt + start)
        return all(np.array_equal(a, b[part]) for a, b in zip(rows, whole, strict=True))

    for padding in paddings:
        whole = run(padding, text, probe.prompt)
        if all(agrees(padding, whole, *part) for part in probe.parts):
            return padding
    return None


def require(padding: Padding | None, file: Path) -> Padding:
    """Return a padding that was asked for.

    Raises:
        RuntimeUnavailable: none makes rows independent of each other.

    """
    if padding is None:
        raise RuntimeUnavailable(
            f"{file}: no padding makes rows independent of each other on this machine: "
            "load it without batch_invariant (--no-batch-invariant)"
        )
    return padding


def known_padding(
    known: KnownOutcomes, paddings: Sequence[Padding], search: Callable[[], Padding | None]
) -> Padding | None:
    """Return the first of these paddings that holds, searched for unless it is known."""

    def name() -> str:
        found = search()
        return found.name if found else _NONE

    named = {padding.name: padding for padding in paddings}
    return named.get(known.get([*named, _NONE], name))
