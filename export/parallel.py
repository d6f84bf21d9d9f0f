"""Work on several cores, one thread of ours a core.

The threads of numpy's BLAS are held to one meanwhile: beside ours they would only wait for each
other, awake.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

# More threads would hold more of the results in memory than they save time.
_MOST_THREADS = 8
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """Yield results in order, computed by one thread a core; as many are under way."""
    cores = min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(cores) as pool, _libraries().limit(limits=1, user_api="blas"):
        pending: deque[Future[_Out]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > cores:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
