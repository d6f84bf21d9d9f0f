"""HTTP connections with a limit on idle time."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Impatient(H11Protocol):
    """Uvicorn's protocol, with a limit on how long a client may stay idle.

    Attributes:
        idle_s: seconds within which a connection's first request must begin, the head of each
            request must be complete, and a client must take some of what it is sent.

    """

    idle_s = 30.0
    _timer: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._drop_later()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the head of a request has arrived
            self._keep()
        elif self._timer is None and getattr(before, "response_complete", False):
            self._drop_later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._keep()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        super().connection_lost(exc)

    def _drop_later(self) -> None:
        self._keep()
        self._timer = self.loop.call_later(self.idle_s, self.transport.abort)

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def impatient(seconds: float) -> type[Impatient]:
    """Return the protocol with this limit."""
    return type("Impatient", (Impatient,), {"idle_s": seconds})
