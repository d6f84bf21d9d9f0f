"""A variable of the environment, which libraries and child processes read, set for a while."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
# By name, how many contexts hold a variable, and what it was before the first.
_held: dict[str, tuple[int, str | None]] = {}


@contextmanager
def variable(name: str, value: str | None) -> Iterator[None]:
    """Context in which a variable has this value; None leaves it as it is.

    Contexts of several threads may overlap: the last to end restores what the first has found.
    """
    if value is None:
        yield
        return
    with _lock:
        count, before = _held.get(name, (0, os.environ.get(name)))
        _held[name] = count + 1, before
        os.environ[name] = value
    try:
        yield
    finally:
        with _lock:
            count, before = _held.pop(name)
            if count > 1:
                _held[name] = count - 1, before
            elif before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
