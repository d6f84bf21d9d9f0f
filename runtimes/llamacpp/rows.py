"""Finds settings under which a row's logits do not depend on the other rows of its pass.

llama.cpp has kernels for single rows that sum in another order than those for several, which
changes the last bits; activations rounded to int8 make steps of 1/127 of them. Which kernels do
depends on the weights' type, on the build and on the processor, so settings are tested, and timed:

- Without flash attention, attention's products over one row have kernels of their own. With it
  they have not, unless one row with keys and values of one type reads 512 cells or more with two
  threads, which then share its keys. Keys in bf16 with values in f16 never do.
- Repacked K-quants have other kernels for four rows, those in the file's order for eight, so that
  a pass has fewer rows.
- A token that is computed together with a copy of itself, a pair, uses no kernel for single rows,
  at the cost of two. Float weights need it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.decoding.tree import FloatArray
from edgedec.errors import SessionError
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context, Settings, cells_for
from edgedec.runtimes.llamacpp.library import Weights

_log = logging.getLogger("edgedec")

# Widths of passes that are compared, up to a root and the longest drafts.
WIDTHS = (2, 3, 4, 5, 6, 7, 8, 12, 17)
# Fewer rows than this would cut most drafts in two: only where they are asked for. Kernels for four
# rows differ from the others on ARM and for repacked K-quants.
_FEW_ROWS, LEAST_ROWS = 4, 2
_COMPARED = 10  # rows, at least, of each width
_TEXT = WIDTHS[-1]
_PROMPT, _COPIES = 61, 7
PROBE_CELLS = cells_for(_PROMPT * (1 + _COPIES) + _TEXT)  # 512
# Without being asked for, independent rows may make one row behind so many tokens slower by the
# first factor, a few rows by the second: what measurements err by, and a little more.
_MOST_LOSS, _MOST_LOSS_OF_FEW = 1.05, 1.1
_TIMED = (1, 2, 4, 8)
# Architectures of which some rows in a hundred have other bits beside others, which a test of few
# rows misses; the reason was not found.
_INEXACT = ("lfm2", "lfm2moe")
_ROUNDS, _LEAST_ROUNDS, _BUDGET_S = 6, 2, 2.0


@dataclass(frozen=True, slots=True)
class Way:
    """Settings to try.

    Attributes:
        repack: whether weights may be reordered for the processor.
        flash_attention: see ``Settings``; None leaves the usual choice.
        kv: type of keys; None leaves the usual choice.
        values: type of values where it is not that of keys.
        paired: see ``Settings``.
        most_rows: found by the test; None is any number.
        slower: found by it, too: it costs more, or holds for fewer rows, than is given without
            being asked for.

    """

    repack: bool = True
    flash_attention: bool | None = None
    kv: str | None = None
    values: str | None = None
    paired: bool = False
    most_rows: int | None = None
    slower: bool = False

    @property
    def name(self) -> str:
        """Name it for the store and for reports."""
        parts = ["pairs" if self.paired else f"flash attention with {self.kv or 'f16'} keys"]
        if self.values:
            parts.append(f"{self.values} values")
        if not self.repack:
            parts.append("weights in the file's order")
        if self.most_rows:
            parts.append(f"at most {self.most_rows} rows")
        if self.slower:
            parts.append(f"slower behind {_PROMPT * (1 + _COPIES)} tokens")
        return ", ".join(parts)

    def applied(self, usual: Settings) -> Settings:
        """Return a model's usual settings, changed."""
        if self.flash_attention is not None:
            usual = dataclasses.replace(
                usual, flash_attention=self.flash_attention, kv=self.kv or usual.kv
            )
        return dataclasses.replace(
            usual, values=self.values, paired=self.paired, most_rows=self.most_rows,
            fours=usual.fours and self.repack, exact=True,
        )  # fmt: skip


def ways(options: LoadOptions) -> list[Way]:
    """Return what may make rows independent and leaves the user's own choices as they are."""
    own = options.own
    kv, flash = own.get("kv"), own.get("flash_attention")
    if flash is False or kv == "f32":  # f32 is converted in every pass
        return []
    orders = (True, False) if own.get("repack") is None else (bool(own["repack"]),)
    kinds = [(kv, None)] if kv else [("f16", None), ("bf16", "f16")]
    return [Way(order, True, *kind) for order in orders for kind in kinds]


def pairs(options: LoadOptions) -> list[Way]:
    """Return what is left where none of ``ways`` hold, at up to twice the time of a token."""
    return [Way(options.own.get("repack") is not False, paired=True)]


def outcomes(tried: Sequence[Way]) -> dict[str, Way | None]:
    """Return all outcomes of a search by their names."""
    caps = (None, *range(LEAST_ROWS, _TEXT))
    every = [
        dataclasses.replace(way, most_rows=cap, slower=slower)
        for way in tried
        for cap in caps
        for slower in (False, True)
    ]
    return {"none": None, **{way.name: way for way in every}}


def find(
    tried: Sequence[Way],
    load: Callable[[bool], Weights],
    usual: Callable[[Weights], Settings],
) -> Way | None:
    """Return the first way that holds and costs little, or else the one of least cost.

    Args:
        tried: by preference.
        load: returns the weights, reordered or not; the ones before are freed when nothing holds
            them.
        usual: returns the usual settings for weights.

    Raises:
        SessionError: llama.cpp cannot run this model.

    """
    held: list[tuple[tuple[bool, float], Way]] = []
    for way in tried:
        # In a function of its own, so that no weights are held while others are loaded.
        found = _tried(way, load, usual)
        if found is not None and not found[1].slower:
            return found[1]
        if found is not None:
            loss, held_by = found
            held.append(((_holds_few(held_by), loss), held_by))
    return min(held, key=lambda one: one[0])[1] if held else None


def _holds_few(way: Way) -> bool:
    return way.most_rows is not None and way.most_rows < _FEW_ROWS


def _tried(
    way: Way, load: Callable[[bool], Weights], usual: Callable[[Weights], Settings]
) -> tuple[float, Way] | None:
    """Return how many times as long a way's row takes, and what it holds for; None if it fails."""
    weights = load(way.repack)
    settings = usual(weights)
    applied = way.applied(settings)
    try:
        context = Context(weights, dataclasses.replace(applied, most_rows=_TEXT), PROBE_CELLS)
    except SessionError:  # kernels that this model cannot have
        return None
    inexact = weights.text("general.architecture") in _INEXACT
    if inexact or (way.paired and weights.recurrent):  # a state cannot drop the copy of a token
        return None
    cap = widest(context)
    if cap < LEAST_ROWS:
        return None
    del context
    # A row of logits is a megabyte where a vocabulary is large: contexts have as few as they need.
    both = (dataclasses.replace(one, most_rows=_TIMED[-1]) for one in (applied, settings))
    judged, plain = (Context(weights, one, PROBE_CELLS) for one in both)
    loss, of_few = losses(judged, plain, cap)
    way = dataclasses.replace(way, most_rows=None if cap == _TEXT else cap)
    slower = loss > _MOST_LOSS or of_few > _MOST_LOSS_OF_FEW or _holds_few(way)
    way = dataclasses.replace(way, slower=slower)
    _log.debug("%s: one row takes %.2f, a few %.2f", way.name, loss, of_few)
    return loss, way


def widest(context: Context) -> int:
    """Return up to how many rows passes give the bits of one row alone; 1 if none do.

    Args:
        context: empty, of ``PROBE_CELLS`` cells.

    """
    start = Start(context)
    alone = start.rows(_TEXT, 1)
    held = 1
    for width in WIDTHS:
        if width > context.rows:
            break
        # The last rows, so that all before them are in the cache.
        count = min(_TEXT, -(-_COMPARED // width) * width)
        count -= count % width
        if start.rows(count, width, before=held) != alone[-count:]:
            break
        held = width
    return held


class Start:
    """A context with a random prompt, after which a text is computed again and again.

    Args:
        context: empty, of ``PROBE_CELLS`` cells.
        long: whether to fill almost all of its ``PROBE_CELLS`` cells, since from 512 on kernels
            differ: with copies of the prompt at its own positions, which rows read as well and
            which are written in no time, or with a longer prompt where a sequence has a state.

    """

    def __init__(self, context: Context, *, long: bool = True) -> None:
        self._context, recurrent = context, context.weights.recurrent
        self._length = _PROMPT * (1 + _COPIES * (long and recurrent))
        rng = np.random.default_rng(0)
        drawn = rng.integers(0, context.vocab_size, self._length + _TEXT).tolist()
        prompt, self.text = drawn[: self._length], drawn[self._length :]
        for at in range(0, self._length, _PROMPT):
            context.run(prompt[at : at + _PROMPT], at, head=False)
        self._state = context.sequence(0, recurrent=True) if recurrent else None
        if long and not recurrent:
            context.repeat(_COPIES)

    def again(self) -> None:
        """Go back to the end of the prompt."""
        if self._state is not None:
            self._context.put_sequence(self._state, 0, recurrent=True)
        self._context.remove(0, self._length)

    def run(self, start: int, end: int) -> FloatArray:
        """Compute these tokens of the text, after those before them, and return their logits."""
        self._context.run(self.text[start:end], self._length + start, head=True)
        return self._context.logits(end - start)

    def rows(self, count: int, width: int, before: int = 1) -> list[bytes]:
        """Return digests of the logits of the text's last ``count`` tokens.

        The logits themselves would be a megabyte a row where a vocabulary is large.

        Args:
            count: of tokens, computed ``width`` at a time.
            width: of a pass.
            before: at a time, of those before them.

        """
        self.again()
        first = _TEXT - count
        for at in range(0, first, before):
            self.run(at, min(first, at + before))
        found = (self.run(at, min(_TEXT, at + width)) for at in range(first, _TEXT, width))
        return [hashlib.sha256(row.tobytes()).digest() for rows in found for row in rows]


def losses(context: Context, plain: Context, most: int) -> tuple[float, float]:
    """Return how many times as long as in another context one row takes, and a few rows.

    In processor time, which other programs disturb least.

    Args:
        context, plain: empty, of ``PROBE_CELLS`` cells. Of a recurrent model, a short prompt is
            read: few of its layers take longer behind a long one.
        most: rows of a pass.

    """
    widths = [width for width in _TIMED if width <= most]
    starts = [Start(one, long=not one.weights.recurrent) for one in (context, plain)]
    best = {(one, width): np.inf for one in starts for width in widths}
    begin = time.process_time()
    for turn in range(_ROUNDS):
        if turn >= _LEAST_ROUNDS and time.process_time() - begin > _BUDGET_S:
            break
        for one, width in best:
            one.again()
            start = time.process_time()
            one.run(0, width)
            best[one, width] = min(best[one, width], time.process_time() - start)
    ratios = [best[starts[0], width] / best[starts[1], width] for width in widths]
    return float(ratios[0]), float(np.mean(ratios[1:]))
