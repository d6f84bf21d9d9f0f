"""Pins threads to cores. Threads that a runtime starts inherit their starter's cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.errors import RuntimeUnavailable


@contextmanager
def pinned(cores: Sequence[int] | None) -> Iterator[None]:
    """Pin the calling thread, and those it starts meanwhile, to these cores; None pins nothing.

    Raises RuntimeUnavailable where the system cannot, or this process may not use these cores.
    """
    if cores is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise RuntimeUnavailable("this system does not keep threads on cores: leave cores out")
    before = os.sched_getaffinity(0)
    missing = sorted(set(cores) - before)
    if missing or not cores:
        raise RuntimeUnavailable(
            f"cores {list(cores)}: expected some of {', '.join(map(str, sorted(before)))}"
        )
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class PinnedEngine(Engine):
    """An engine whose caller's thread is pinned to ``cores`` while it decodes."""

    def __init__(self, *arguments: Any, cores: Sequence[int] | None) -> None:
        super().__init__(*arguments)
        self._cores = cores

    def around_round(self, metrics: Metrics) -> AbstractContextManager[None]:
        return pinned(self._cores)
