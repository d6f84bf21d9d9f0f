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
from edgedec.hardware.resident import release_free
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
_PROMPT, _COPIES = 30, 15
PROBE_CELLS = cells_for(_PROMPT * (1 + _COPIES) + _TEXT)  # 512
# Without being asked for, independent rows may make one row slower by the first factor, behind a
# page of text: what measurements err by. Several may be slower by the second: only drafts compute
# several, and are measured while they do.
_MOST_LOSS, _MOST_LOSS_OF_SEVERAL = 1.05, 1.2
_TIMED = (1, 2, 4)
# Architectures of which some rows in a hundred have other bits beside others, which a test of few
# rows misses; the reason was not found.
_INEXACT = ("lfm2", "lfm2moe")
# Passes of a context that are timed: at most, and of a width at least.
_PASSES, _LEAST_ROUNDS, _BUDGET_S = 20, 2, 1.5


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

    """

    repack: bool = True
    flash_attention: bool | None = None
    kv: str | None = None
    values: str | None = None
    paired: bool = False
    most_rows: int | None = None

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
    every = [dataclasses.replace(way, most_rows=cap) for way in tried for cap in caps]
    return {"none": None, **{way.name: way for way in every}}


def find(
    tried: Sequence[Way],
    load: Callable[[bool], Weights],
    usual: Callable[[Weights], Settings],
    *,
    asked: bool,
) -> Way | None:
    """Return the first way that holds and costs little, or else the one of least cost.

    Args:
        tried: by preference.
        load: returns the weights, reordered or not; the ones before are freed when nothing holds
            them.
        usual: returns the usual settings for weights.
        asked: whether one that costs more will do.

    Raises:
        SessionError: llama.cpp cannot run this model.

    """
    held: list[tuple[tuple[bool, float], Way]] = []
    for way in tried:
        # In a function of its own, so that no weights are held while others are loaded.
        found = _tried(way, load, usual, asked=asked)
        if found is None:
            continue
        lone, several, way = found
        few = way.most_rows is not None and way.most_rows < _FEW_ROWS
        if not few and lone <= _MOST_LOSS and several <= _MOST_LOSS_OF_SEVERAL:
            return way
        held.append(((few, lone), way))
    return min(held, key=lambda one: one[0])[1] if asked and held else None


def _tried(
    way: Way,
    load: Callable[[bool], Weights],
    usual: Callable[[Weights], Settings],
    *,
    asked: bool,
) -> tuple[float, float, Way] | None:
    """Return how many times as long one row and several take, and what a way holds for.

    None if it fails, or if it costs more than one may that was not asked for.
    """
    weights = load(way.repack)
    settings = usual(weights)
    both = [way.applied(settings), settings]
    inexact = weights.text("general.architecture") in _INEXACT
    if inexact or (way.paired and weights.recurrent):  # a state cannot drop the copy of a token
        return None

    def empty(one: Settings, most: int) -> Context:
        release_free()  # of what the contexts before it took, the heap would keep megabytes
        return Context(weights, dataclasses.replace(one, most_rows=most), PROBE_CELLS)

    def loss(widths: Sequence[int]) -> float:
        # A row of logits is a megabyte where a vocabulary is large: as few as are needed.
        judged, plain = (empty(one, max(widths[-1], LEAST_ROWS)) for one in both)
        return float(np.mean(losses(judged, plain, widths)))

    try:
        lone = loss(_TIMED[:1])
        cap = 1
        if asked or lone <= _MOST_LOSS:
            cap = widest(empty(both[0], _TEXT))
        if cap < LEAST_ROWS:
            _log.debug("%s: one row takes %.2f", way.name, lone)
            return None
        several = loss([width for width in _TIMED[1:] if width <= cap])
    except SessionError:  # kernels that this model cannot have
        return None
    way = dataclasses.replace(way, most_rows=None if cap == _TEXT else cap)
    _log.debug("%s: one row takes %.2f, several %.2f", way.name, lone, several)
    return lone, several, way


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


def losses(context: Context, plain: Context, widths: Sequence[int]) -> list[float]:
    """Return how many times as long as in another context a pass of each width takes.

    In processor time, which other programs disturb least.

    Args:
        context, plain: empty, of ``PROBE_CELLS`` cells. Of a recurrent model, a short prompt is
            read: few of its layers take longer behind a long one.
        widths: in rows.

    """
    starts = [Start(one, long=not one.weights.recurrent) for one in (context, plain)]
    best = {(one, width): np.inf for one in starts for width in widths}
    begin = time.process_time()
    for turn in range(_PASSES // len(widths)):
        if turn >= _LEAST_ROUNDS and time.process_time() - begin > _BUDGET_S:
            break
        for one, width in best:
            one.again()
            start = time.process_time()
            one.run(0, width)
            best[one, width] = min(best[one, width], time.process_time() - start)
    return [best[starts[0], width] / best[starts[1], width] for width in widths]
