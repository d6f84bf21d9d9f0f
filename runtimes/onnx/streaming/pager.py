"""Reads streamed weights ahead of the pass, in the order of the layers, and releases them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from edgedec._support.amounts import megabytes
from edgedec.errors import Interrupted, MemoryBudgetError, PassFailed
from edgedec.runtimes.onnx.streaming import pages
from edgedec.runtimes.onnx.streaming.pages import Source, Span

_POLL_S = 0.05


# -- which part of each block stays in memory ---------------------------------------------------
#
# Every block keeps a part, so that reading and computing alternate evenly. While a block computes
# the next one is read: the streamed parts of ``WINDOW`` neighbours are in memory at once.

WINDOW = 2
_STEP = 1 << 16


def streamed_bytes(sizes: Sequence[int], memory: int) -> list[int]:
    """Return how many bytes of each block to read in every pass, as few as the memory allows.

    Args:
        sizes: bytes of the blocks, in the order in which they are computed.
        memory: most bytes of weights in memory at once.

    Raises:
        MemoryBudgetError: names the smallest amount that suffices.

    """
    if sum(sizes) <= memory:
        return [0] * len(sizes)
    most = max(sizes)
    least = peak_bytes(sizes, sizes)
    if least > memory:
        raise MemoryBudgetError(
            f"{memory / 1e6:.1f} MB of memory for weights is too little: two neighbouring blocks of"
            f" this model take up to {megabytes(least)} MB, give at least as much"
        )
    low, high = 0, -(-most // _STEP)  # of the part that a block may not keep
    while low < high:
        middle = (low + high) // 2
        if peak_bytes(sizes, _cut(sizes, middle * _STEP)) <= memory:
            high = middle
        else:
            low = middle + 1
    return _cut(sizes, low * _STEP)


def peak_bytes(sizes: Sequence[int], streamed: Sequence[int]) -> int:
    """Return the most bytes that are in memory at once."""
    around = [*streamed, *streamed[: WINDOW - 1]]
    neighbours = max(sum(around[at : at + WINDOW]) for at in range(len(sizes)))
    return sum(sizes) - sum(streamed) + min(neighbours, sum(streamed))


def _cut(sizes: Sequence[int], most: int) -> list[int]:
    return [min(size, most) for size in sizes]


# -- reading the rest while the previous block computes -----------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """The streamed part of one block.

    Attributes:
        spans: the parts that are read; none if the whole block stays in memory.

    """

    source: Source
    spans: tuple[Span, ...]

    def load(self) -> None:
        """Read all spans."""
        for span in self.spans:
            self.source.fill(span)

    def release(self) -> None:
        for span in self.spans:
            pages.release(span)


class Pager:
    """A thread that reads the blocks' streamed parts in turn, over and over.

    After the last block it reads the first one of the next pass, so reading goes on between passes.
    At most ``WINDOW`` blocks are read and not yet released. It serves one pass at a time.

    Args:
        stretches: one per block, in the order in which they are computed.

    Attributes:
        streamed_bytes: bytes read in every pass.

    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = stretches
        self._order = [at for at, stretch in enumerate(stretches) if stretch.spans]
        self.streamed_bytes = sum(span.length for s in stretches for span in s.spans)
        self._changed = threading.Condition()
        self._ready: set[int] = set()
        self._held = self._turn = 0  # blocks in memory or being read; which one is read next
        self._reading = self._closing = self._stopped = False
        self._failure: PassFailed | None = None
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        if self._order:
            self._thread.start()

    # -- for the pass ---------------------------------------------------------------------------

    def take(self, block: int, stop: Callable[[], bool], waits: Callable[[], None]) -> None:
        """Wait until a block's weights are in memory.

        Args:
            block: index of the block; blocks are taken in order.
            stop: returns whether to give up.
            waits: called before waiting.

        Raises:
            Interrupted: ``stop`` returned True.
            PassFailed: its weights could not be read.

        """
        if not self._stretches[block].spans:
            return
        with self._changed:
            if block not in self._ready:
                waits()
            while block not in self._ready:
                if self._failure is not None:
                    raise self._failure
                if stop():
                    raise Interrupted("interrupted")
                self._changed.wait(_POLL_S)

    def release(self, block: int) -> None:
        """Free a block's streamed weights after it was computed."""
        if not self._stretches[block].spans:
            return
        self._stretches[block].release()
        with self._changed:
            self._ready.discard(block)
            self._held -= 1
            self._changed.notify_all()

    def restart(self) -> None:
        """Start again with the first block, after a pass that ended early."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: not self._reading)
            for block in self._ready:
                self._stretches[block].release()
            self._ready.clear()
            self._held = self._turn = 0
            self._failure, self._stopped = None, False
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread, and close the files."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for stretch in self._stretches:
            with suppress(OSError):
                stretch.source.close()

    # -- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_go)
                if self._closing:
                    return
                block = self._order[self._turn % len(self._order)]
                self._turn += 1
                self._held += 1
                self._reading = True
            failure = self._load(block)
            with self._changed:
                self._reading = False
                if failure is None:
                    self._ready.add(block)
                else:
                    self._failure = failure
                self._changed.notify_all()

    def _may_go(self) -> bool:
        if self._closing:
            return True
        free = self._held < min(WINDOW, len(self._order))
        return free and self._failure is None and not self._stopped

    def _load(self, block: int) -> PassFailed | None:
        try:
            self._stretches[block].load()
        except PassFailed as error:
            return error
        except BaseException as error:  # nothing may end the thread with a pass waiting for it
            return PassFailed(f"streamed weights could not be read: {error}")
        return None
