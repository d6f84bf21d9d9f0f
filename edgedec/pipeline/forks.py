"""What a fork of the process makes of open pipelines: they refuse, rather than wait for ever.

A fork has none of the threads that compute passes. A runtime would wait for them, even to free its
memory, so in the fork the models are kept until it ends.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable

_OPEN: weakref.WeakSet[Watched] = weakref.WeakSet()


class Watched:
    """Calls a method in processes that are forked from this one, while its object lives.

    Args:
        refuse: refuses all texts from then on; returns what must not be freed.

    """

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = weakref.WeakMethod(refuse)
        _OPEN.add(self)

    def keep(self) -> None:
        """Call the method, and keep what it returns for good."""
        if refuse := self._refuse():
            # One reference too many: no destructor runs, not even when the interpreter ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(refuse()))


def _in_fork() -> None:
    for one in list(_OPEN):
        one.keep()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)
