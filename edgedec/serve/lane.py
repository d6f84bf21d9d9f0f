"""A thread for work that would hold every client up: one job at a time, short ones first.

Short jobs overtake the oldest, but those that do are together at most as long as it is. So the work
done before a job is at most twice what waited when it came, plus its own size.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from edgedec.grammar.grammars import Grammars
from edgedec.serve.errors import busy, ending
from edgedec.serve.turns import Work

T = TypeVar("T")


class _Job(Future[Any]):
    def __init__(self, do: Callable[[], Any], size: int) -> None:
        super().__init__()
        self.do, self.size = do, size


class Lane:
    """Does jobs in a thread of its own.

    Attributes:
        jobs: number of jobs in it, the current one included.

    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"edgedec-{name}")
        self._changed = threading.Condition()
        self._waiting: list[_Job] = []  # the oldest first
        self._overtaken = 0  # the sum of those that have overtaken it
        self.jobs = self._done = 0
        self.closed = False

    async def run(self, job: Callable[[], T], size: int = 0) -> T:
        """Return what a job returns.

        Args:
            size: of the job; jobs of equal sizes are done in the order in which they came.

        Raises:
            ApiError: the server ends.

        """
        one = _Job(job, size)
        with self._changed:
            if self.closed:
                raise ending()
            self.jobs += 1
            self._waiting.append(one)
            self._pool.submit(self._do_next)
        one.add_done_callback(self._left)
        try:
            return await asyncio.wrap_future(one)
        except asyncio.CancelledError:
            if self.closed:
                raise ending() from None
            raise
        finally:
            del one  # else it and an error would keep each other

    def _do_next(self) -> None:
        with self._changed:
            if not self._waiting:
                return  # turned away
            index = due([one.size for one in self._waiting], self._overtaken)
            one = self._waiting.pop(index)
            self._overtaken = self._overtaken + one.size if index else 0
        if one.set_running_or_notify_cancel():
            try:
                one.set_result(one.do())
            except BaseException as error:
                one.set_exception(error)
                del one  # the error's traceback would keep it, and its memory

    def _left(self, future: Future[Any]) -> None:
        with self._changed:
            self.jobs -= 1
            self._done += 1
            self._changed.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait in another thread until a job has ended; return whether one has."""
        with self._changed:
            before = self._done
            return self.jobs > 0 and self._changed.wait_for(lambda: self._done > before, seconds)

    def close(self) -> None:
        """Turn away the jobs that wait; the thread ends after the current one."""
        with self._changed:
            self.closed = True
            turned_away, self._waiting = self._waiting, []
        for one in turned_away:
            one.cancel()
        self._pool.shutdown(wait=False)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._pool.shutdown()


def due(sizes: Sequence[int], overtaken: int) -> int:
    """Return the index of the job to do next.

    Args:
        sizes: of the jobs that wait, the oldest first.
        overtaken: the sum of those that have overtaken the oldest.

    """
    shortest = min(range(len(sizes)), key=sizes.__getitem__)
    return shortest if overtaken + sizes[shortest] <= sizes[0] else 0


class Compiler:
    """Compiles grammars before the decoding thread needs them.

    Attributes:
        lane: where they are compiled.

    """

    # New ones, the current one included: each may take as long as ``grammars`` allows.
    most = 4

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self.lane = Lane("grammar")

    async def prepare(self, works: Sequence[Work]) -> None:
        """Compile the grammar of a request, which all of its texts follow.

        Raises:
            ApiError: too many new ones are waiting.
            InputError, RuntimeUnavailable: it cannot be used; says why.

        """
        grammar = works[0].options.constraint
        if grammar is None:
            return
        compiled = partial(self._grammars.constraint, grammar)
        if self._grammars.knows(grammar):  # it does not wait
            prepared = await asyncio.to_thread(compiled)
        else:
            if self.lane.jobs >= self.most:
                raise busy(
                    f"{self.lane.jobs} new schemas or grammars are being compiled: ask again"
                    " later", retry_s=5,
                )  # fmt: skip
            prepared = await self.lane.run(compiled)
        for work in works:
            work.prepared = prepared
