"""Runs work in one thread per core.

Meanwhile numpy's BLAS is limited to one thread: more would only compete with these.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

# More threads would hold more results in memory for little gain.
_MOST_THREADS = 8
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """Yield results in order, computed by one thread per core; as many are in flight."""
    cores = min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(cores) as pool, one_thread():
        pending: deque[Future[_Out]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > cores:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def one_thread() -> AbstractContextManager[object]:
    """Hold numpy's BLAS to the calling thread: waking others costs more than small products."""
    held: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return held


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
