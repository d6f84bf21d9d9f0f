"""What a fork of the process makes of open pipelines: they refuse, rather than wait for ever.

A fork has none of the threads that compute passes. A runtime would wait for them, even to free its
memory, so in the fork the models are kept until it ends.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgedec.pipeline.decoder import Decoder

_OPEN: weakref.WeakSet[Decoder] = weakref.WeakSet()


def watch(decoder: Decoder) -> None:
    """Have a decoder refuse all texts in processes that are forked from this one."""
    _OPEN.add(decoder)


def _in_fork() -> None:
    for decoder in list(_OPEN):
        # One reference too many: no destructor runs, not even when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(decoder._after_fork()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)
