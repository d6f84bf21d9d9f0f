"""Waiting for what other threads do, without a guess of how long it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

# No busy machine reaches it; a test that does has found a fault.
LIMIT_S = 120.0


def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = monotonic() + LIMIT_S
    while not holds():
        assert monotonic() < end, "it never came"
        sleep(0.001)


class Apart:
    """A call in a thread of its own.

    Attributes:
        value: what it returned.
        error: what it raised.

    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def result(self) -> Any:
        """Wait for its end; return its value, or raise its error."""
        self._thread.join(LIMIT_S)
        assert not self.running, "it never ended"
        if self.error is not None:
            raise self.error
        return self.value
