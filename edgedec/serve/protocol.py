"""HTTP connections with limits on idle time, on their number, on heads and on what is refused."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgedec.serve.errors import ApiError

HEAD_BYTES, _HEAD_FIELDS = 16 << 10, 100


class _Connection(h11.Connection):
    """h11's parser, which reads no head before its size is known: each field costs it time."""

    def next_event(self) -> Any:
        """Return the next event; RemoteProtocolError for a head that is too large or ambiguous."""
        beginning = self.their_state is h11.IDLE
        if beginning:
            head = self.trailing_data[0].lstrip(b"\r\n")
            ends = [at for mark in (b"\n\r\n", b"\n\n") if (at := head.find(mark)) >= 0]
            size = min(ends, default=len(head))
            if size > HEAD_BYTES or head.count(b"\n", 0, size) > _HEAD_FIELDS:
                raise h11.RemoteProtocolError(
                    f"expected at most {_HEAD_FIELDS} fields in {HEAD_BYTES} bytes", 431
                )
        event = super().next_event()
        if beginning and isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"transfer-encoding", b"content-length"} <= names:  # RFC 9112, section 6.3
                raise h11.RemoteProtocolError("expected one length of the body")
        return event


class _Answering:
    """A connection as an answer's cycle sees it, which cannot close it while a body is coming."""

    def __init__(self, protocol: Limited) -> None:
        self._protocol, self.is_closing = protocol, protocol.transport.is_closing

    def write(self, data: bytes) -> None:
        self._protocol.transport.write(data)
        self._protocol.wrote(len(data))

    def close(self) -> None:
        cycle: Any = self._protocol.cycle
        if not (cycle.response_complete and cycle.more_body):
            self._protocol.transport.close()


class Limited(H11Protocol):
    """Uvicorn's protocol with limits on idle clients and on the number of connections.

    Where a new connection is one too many, of its address or in all, the oldest one gives way whose
    client owes the next byte, or has taken nothing of what it was sent for ``linger_s``.

    Attributes:
        idle_s: seconds within which a connection's first request must begin, the head of each
            request must be complete, and a client must take some of what it is sent.
            That holds for each state of a connection, one that is being closed as well.
        linger_s: seconds that the client of a refused body has to read the answer.
        most: connections; ``most_of_one`` of one address whose clients owe something.
        by_age: all connections of the server, the oldest first.

    """

    idle_s, linger_s = 30.0, 1.0
    most, most_of_one = 768, 256  # systems let a process open 1024 files
    by_age: ClassVar[dict[Limited, None]] = {}
    _timer: Any = None
    _taking: Any = None  # a timer while something is on its way to the client
    _written = _taken = 0  # bytes
    _since = 0.0  # the client has taken nothing since then
    _refused = _aborted = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _Connection(h11.SERVER, self.config.h11_max_incomplete_event_size or HEAD_BYTES)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._make_room()
        self.by_age[self] = None
        self._drop_later(self.idle_s)

    @property
    def owes(self) -> bool:
        """True while the server waits for the client, to send something or to take it."""
        cycle: Any = self.cycle
        sends = cycle is None or cycle.more_body or cycle.response_complete
        return sends or self._stalled_s() >= self.linger_s > 0

    @property
    def ended(self) -> bool:
        """True if nothing holds the connection any longer; the loop has yet to remove it."""
        unsent = self.transport.get_write_buffer_size()
        return self._aborted or (self.transport.is_closing() and not unsent)

    def abort(self) -> None:
        """Drop the connection with all that is on its way."""
        self._aborted = True
        self.transport.abort()

    def wrote(self, count: int) -> None:
        """Count bytes that were written; what the client does not take has a deadline."""
        self._written += count
        self._stalled_s()
        if self._taking is None and self.transport.get_write_buffer_size():
            self._taking = self.loop.call_later(self.idle_s, self._check_taken)

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

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self.wrote(len(msg))

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        if self._taking is not None:
            self._taking.cancel()
        self.by_age.pop(self, None)
        if self.cycle is not None:
            self.cycle.transport = self.transport  # else each would keep the other
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Drop the oldest connection that owes something, if there are too many."""
        if len(self.by_age) < self.most_of_one:
            return
        idle = [one for one in self.by_age if one.owes and not one.ended]
        near = [one for one in idle if _address(one) == _address(self)]
        if len(near) >= self.most_of_one:
            near[0].abort()
        elif len(self.by_age) >= self.most and idle:
            idle[0].abort()
        elif len(self.by_age) >= self.most:
            self.app = _crowded

    def _stalled_s(self) -> float:
        """Return the seconds since the client was last seen to take something it was sent."""
        unsent, now = self.transport.get_write_buffer_size(), self.loop.time()
        taken = self._written - unsent
        if not unsent or taken != self._taken:
            self._taken, self._since = taken, now
        return now - self._since

    def _check_taken(self) -> None:
        """Abort the connection if its client takes nothing, else look again in time."""
        self._taking = None
        if not self.transport.get_write_buffer_size():
            return
        if (stalled := self._stalled_s()) >= self.idle_s:
            self.abort()
        else:
            self._taking = self.loop.call_later(self.idle_s - stalled, self._check_taken)

    def _drop_later(self, seconds: float) -> None:
        self._keep()
        self._timer = self.loop.call_later(seconds, self.abort)

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
    error = ApiError(503, "too many connections: try again later", code="crowded", retry_s=5)
    await error.response()(scope, receive, send)
