"""Pads passes so that a row's bits do not depend on the other rows of its pass.

Matrix kernels have a variant for a single remaining row that adds in another order, so the same
token gets other low bits (and, if activations are quantised, other digits) in a pass of 1 row than
in one of 5. A padded pass never leaves a single row. Which padding suffices depends on this
machine's kernels and the weights' format, so it is tested, not assumed.

The guarantee is for chains. In a branching tree a token's ancestors have other slots than they will
have in the text, and the softmax over them adds in another order.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.outcomes import KnownOutcomes

PROBE_SLOTS = 32
# As ``KnownOutcomes`` has them.
KIND = "paddings"
# Unasked, a lone row may take this many times as long as without padding, behind so many tokens: a
# page of text, and a question about it. Padding of attention reads the cache twice, so the
# longer the text, the more it costs: measured for a model of 135M in int8, 1.0 times behind 128
# tokens, 1.04 behind 256, 1.12 behind 512, 1.18 behind 768 and 1.22 behind 1,024.
MOST_COST, USUAL_CONTEXT = 1.05, 512
# Of a large model, whose drafts gain as much where they fill the padding.
MOST_COST_OF_LARGE = 1.1
_NONE, _DEAR = "nothing holds", f"costs too much behind {USUAL_CONTEXT} tokens"

Rows = tuple[npt.NDArray[np.generic], ...]


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
        texts: how many such texts. Attention whose sums are rounded to int8 at once hides most of
            what its kernel does otherwise, so that few numbers need more of them.

    """

    prompt: int
    text: int
    parts: tuple[tuple[int, int], ...]
    texts: int = 1


PROBE = Probe(11, 9, ((8, 1), (6, 3), (5, 1), (4, 1), (4, 5), (3, 1), (2, 1), (2, 7), (1, 1),
                      (0, 1), (0, 2), (0, 4), (0, 8)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for a number of rows.

    Attributes:
        multiple: rows are a multiple of this.
        keys: rows and the slots before them are a multiple of this together: the keys that
            attention reads.
        never_one_over: rows are never one more than a multiple of this (0: no such rule). Kernels
            work on blocks of rows; one more leaves a single row.

    """

    multiple: int = 1
    keys: int = 1
    never_one_over: int = 0

    @property
    def slack(self) -> int:
        """Most rows added."""
        return self.multiple + self.keys - 2 + (self.keys if self.never_one_over else 0)

    def rows(self, count: int, past: int) -> int:
        """Return the rows of a pass over ``count`` tokens behind ``past`` slots."""
        rows = -(-count // self.multiple) * self.multiple
        rows += -(past + rows) % self.keys
        lone = self.never_one_over and rows % self.never_one_over == 1
        return rows + self.keys if lone else rows


@dataclass(frozen=True, slots=True)
class Padding:
    """Rules for the rows of a pass.

    Attributes:
        name: for reports.
        all: for all of it.
        attention: for attention, where the graph has rows of its own for it; None is as all.

    """

    name: str
    all: Rule = Rule()
    attention: Rule | None = None

    @property
    def slack(self) -> int:
        """Most rows added."""
        return max(self.all.slack, self.attention.slack if self.attention else 0)

    def rows(self, count: int, past: int) -> int:
        """Return the rows that attention computes for ``count`` tokens behind ``past`` slots."""
        return (self.attention or self.all).rows(count, past)

    def pad(self, tokens: Sequence[int], past: int) -> Sequence[int]:
        """Return the tokens, with the last one repeated as padding."""
        more = self.all.rows(len(tokens), past) - len(tokens)
        return [*tokens, *[tokens[-1]] * more] if more else tokens


@dataclass(frozen=True, slots=True)
class Paddings:
    """Those that a kind of processor may need, cheapest first.

    Attributes:
        free: used without being asked for on a model of fewer bytes than ``LARGE_BYTES``, and
            where drafts seldom fill the padding (``LoadOptions.may_pad``).
        usual: on a larger one, where a padded row is found to take little longer.
        asked: where a text must not depend on its drafts: for ``batch_invariant``, and for graphs
            exported with it. Which of them suffices, and so what it costs, is up to the kernels.

    """

    free: tuple[Padding, ...]
    usual: tuple[Padding, ...]
    asked: tuple[Padding, ...]


_NO_LONE_ROW = Rule(never_one_over=16)
# Kernels for ARM compute the last columns of a product, up to three of them, in another order: a
# key's score depends on how many keys follow, unless they are always a multiple of four. Few rows
# of a small model show it, too few for a trial, so that nothing less is tried there.
_FOURS = Rule(keys=4, never_one_over=16)
NO_PADDING = Padding("none")
_ON_OTHERS = (
    NO_PADDING,
    Padding("no lone row in attention", attention=_NO_LONE_ROW),
    Padding("no lone row", _NO_LONE_ROW),
    Padding("even", Rule(multiple=2)),
    Padding("multiple of 4", Rule(multiple=4)),
)
_ON_ARM = (
    Padding("keys by fours in attention", attention=_FOURS),
    Padding("no lone row, keys by fours in attention", _NO_LONE_ROW, _FOURS),
    # 3.5 rows for one, on processors of which no cost is known.
    Padding("keys by fours", _FOURS),
)
ELSEWHERE = Paddings(_ON_OTHERS[:1], _ON_OTHERS, _ON_OTHERS)
# None is free there, nor cheap enough for a graph whose attention has no rows of its own.
ON_ARM = Paddings((), (), _ON_ARM)
HERE = ON_ARM if platform.machine().lower() in ("aarch64", "arm64") else ELSEWHERE
LARGE_BYTES = 200_000_000
# From here on a row takes long enough for its padding to be timed.
MIDDLE_BYTES = 64_000_000

Run = Callable[[Padding, Sequence[int], int], Rows]


def find_padding(
    run: Run, vocab_size: int, paddings: Sequence[Padding], probe: Probe = PROBE
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
    drawn = rng.integers(0, vocab_size, (probe.texts, probe.prompt + probe.text)).tolist()

    read: list[int] = []

    def holds(padding: Padding, tokens: list[int]) -> bool:
        nonlocal read
        prompt, text = tokens[: probe.prompt], tokens[probe.prompt :]
        if tokens is not read:
            run(NO_PADDING, prompt, 0)
            read = tokens
        whole = run(padding, text, probe.prompt)
        return all(agrees(padding, text, whole, *part) for part in probe.parts)

    def agrees(padding: Padding, text: list[int], whole: Rows, start: int, width: int) -> bool:
        part = slice(start, start + width)
        rows = run(padding, text[part], probe.prompt + start)
        return all(np.array_equal(a, b[part]) for a, b in zip(rows, whole, strict=True))

    return next((one for one in paddings if all(holds(one, text) for text in drawn)), None)


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
    known: KnownOutcomes,
    paddings: Sequence[Padding],
    search: Callable[[], Padding | None],
    cost: Callable[[Padding], float] | None = None,
    most: float = MOST_COST,
) -> Padding | None:
    """Return the first of these paddings that holds, searched for unless it is known.

    With ``cost``, which says how many times as long a lone row takes, None if it is over ``most``.
    """

    def name() -> str:
        found = search()
        if found is None:
            return _NONE
        return _DEAR if cost is not None and cost(found) > most else found.name

    named = {padding.name: padding for padding in paddings}
    outcomes = [*named, _NONE] if cost is None else [*named, _NONE, _DEAR]
    return named.get(known.get(outcomes, name))
