"""Runs work in one thread per core.

During that time numpy's BLAS is limited to one thread, since more would compete with these.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray

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
    """Limit numpy's BLAS to the calling thread: waking others takes longer than small products."""
    held: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return held


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


# -- several texts through a layer in step: each matrix is read once for all of them ------------

# Yields the products that each text asks for (the same ones, each with the text's own input), is
# sent the matrices transposed, ``[in, out]``, and returns the residual streams after the layer.
Step = list[tuple[Product, ...]]
InStep = Generator[Step, Sequence[FloatArray], list[FloatArray]]


def in_step(reference: Reference, layer: int, streams: list[FloatArray]) -> InStep:
    """Run a layer over residual streams; empties their list, since all of them may be large."""
    running = [reference.steps(layer, x) for x in streams]
    streams.clear()
    after = [np.empty(0, np.float32)] * len(running)
    asked = list(ahead(next, running))
    while asked:
        matrices = yield asked

        def send(
            index: int, asked: Step = asked, matrices: Sequence[FloatArray] = matrices
        ) -> tuple[Product, ...]:
            # A few texts' products at a time, to limit memory.
            x = asked[index][0].x
            try:
                return running[index].send([x @ matrix for matrix in matrices])
            except StopIteration as done:
                after[index] = done.value
                return ()

        asked = [products for products in ahead(send, range(len(running))) if products]
        del send, matrices
    return after
