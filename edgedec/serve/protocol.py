"""HTTP connections with limits on idle time, on their number and on what is refused."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgedec.serve.errors import UNAVAILABLE, ApiError


class _Answering:
    """A connection as an answer's cycle sees it, which cannot close it while a body is coming."""

    def __init__(self, protocol: Limited) -> None:
        self._protocol, transport = protocol, protocol.transport
        self.write, self.is_closing = transport.write, transport.is_closing

    def close(self) -> None:
        cycle: Any = self._protocol.cycle
        if not (cycle.response_complete and cycle.more_body):
            self._protocol.transport.close()


class Limited(H11Protocol):
    """Uvicorn's protocol with limits on idle clients and on the number of connections.

    Where a new connection is one too many, of its address or in all, the oldest one whose client
    owes the next byte gives way.

    Attributes:
        idle_s: seconds within which a connection's first request must begin, the head of each
            request must be complete, and a client must take some of what it is sent.
        linger_s: seconds that the client of a refused body has to read the answer.
        most: connections; ``most_of_one`` of one address whose clients owe the next byte.
        by_age: all connections of the server, the oldest first.

    """

    idle_s, linger_s = 30.0, 1.0
    most, most_of_one = 768, 256  # systems let a process open 1024 files
    by_age: ClassVar[dict[Limited, None]] = {}
    _timer: Any = None
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._make_room()
        self.by_age[self] = None
        self._drop_later(self.idle_s)

    @property
    def owes(self) -> bool:
        """True while the server waits for the client to send something."""
        cycle: Any = self.cycle
        return cycle is None or cycle.more_body or cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the head of a request has arrived
            self._keep()
        elif self._timer is None and getattr(before, "response_complete", False):
            self._drop_later(self.idle_s)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.cycle.transport = cast(Any, _Answering(self))

    def on_response_complete(self) -> None:
        self.cycle.transport = self.transport
        self._refused = self.cycle.more_body
        super().on_response_complete()
        if self._refused and not self.transport.is_closing():
            # If it were closed at once, what the client still sends would undo the answer.
            self.transport.write_eof()
            self._drop_later(self.linger_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_later(self.idle_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._keep()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        self.by_age.pop(self, None)
        if self.cycle is not None:
            self.cycle.transport = self.transport  # else each would keep the other
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Drop the oldest connection that owes something, if there are too many."""
        if len(self.by_age) < self.most_of_one:
            return
        idle = [one for one in self.by_age if one.owes and not one.transport.is_closing()]
        near = [one for one in idle if _address(one) == _address(self)]
        if len(near) >= self.most_of_one:
            near[0].transport.abort()
        elif len(self.by_age) >= self.most and idle:
            idle[0].transport.abort()
        elif len(self.by_age) >= self.most:
            self.app = _crowded

    def _drop_later(self, seconds: float) -> None:
        self._keep()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited(seconds: float) -> type[Limited]:
    """Return the protocol of one server, with this limit on idle time."""
    changed = {"idle_s": seconds, "linger_s": min(seconds, Limited.linger_s), "by_age": {}}
    return type("Limited", (Limited,), changed)


def _address(one: Limited) -> str | None:
    return one.client[0] if one.client else None


async def _crowded(scope: Scope, receive: Receive, send: Send) -> None:
    error = ApiError(
        503, "too many connections: try again later", kind=UNAVAILABLE, code="crowded", retry_s=5
    )
    await error.response()(scope, receive, send)
