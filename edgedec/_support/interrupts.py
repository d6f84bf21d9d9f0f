"""Ctrl-C at a better moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt that comes meanwhile take effect at the end.

    Some compiled modules abort the process if one comes while they are imported.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # no Python function would be called in this thread
        return
    came = False

    def on_signal(*_: object) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
