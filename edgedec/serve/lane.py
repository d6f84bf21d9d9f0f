"""A thread for work that would hold every client up: one job at a time, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from edgedec.serve.errors import ending

T = TypeVar("T")


class Lane:
    """Does jobs in a thread of its own.

    Args:
        name: of the thread.

    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"edgedec-{name}")
        self._changed = threading.Condition()
        self._jobs = self._done = 0
        self._closed = False

    @property
    def jobs(self) -> int:
        """Number of jobs in it, the current one included."""
        return self._jobs

    async def run(self, job: Callable[[], T]) -> T:
        """Return what a job returns.

        Raises:
            ApiError: the server ends.

        """
        if self._closed:
            raise ending()
        with self._changed:
            self._jobs += 1
        future = self._pool.submit(job)
        future.add_done_callback(self._left)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._closed:
                raise ending() from None
            raise

    def _left(self, future: Future[Any]) -> None:
        with self._changed:
            self._jobs -= 1
            self._done += 1
            self._changed.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait in another thread until a job has ended; return whether one has."""
        with self._changed:
            before = self._done
            return self._jobs > 0 and self._changed.wait_for(lambda: self._done > before, seconds)

    def close(self) -> None:
        """Turn away the jobs that wait; the thread ends after the current one."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._pool.shutdown()
