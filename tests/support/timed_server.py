"""A server in a thread over an application of two answers, whose time a test may set."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from waiting import LIMIT_S, until

from edgedec.serve.protocol import limited

LEFT = threading.Event()  # an answer's client is gone
PAGE_BYTES = 60_000
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers ``/`` at once, and ``/endless`` until the client is gone.

    ``/page`` is an answer in one piece, as large as a connection takes without a pause.
    """

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        LEFT.set()

    gone = asyncio.create_task(left())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while scope["path"] == "/endless" and not gone.done():
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await asyncio.sleep(0)
    page = b"x" * PAGE_BYTES if scope["path"] == "/page" else b""
    await send({"type": "http.response.body", "body": page + b"done"})
    gone.cancel()


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes only when a test says so."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Let time pass, and have the loop do what is due; called from another thread."""

        def advance() -> None:
            self.now += seconds
            self.call_soon(done.set)  # after the timers, which come first in the next turn

        done = threading.Event()
        self.call_soon_threadsafe(advance)
        assert done.wait(LIMIT_S)


class Watched:
    """A server in a thread, with a clock of its own, and what its connections have done.

    Attributes:
        address: of the server.
        clock: its loop.
        made, received, paused, resumed: numbers of connections, of pieces that came, and of times
            that one could not write on and that one could again.
        paused_at, lost_at: when that was last so, and when a connection last ended.
        unsent: bytes that the last connection that read something could not hand to the system.
        buffer_bytes: of the system, for what a connection sends; 0 leaves that to it.

    """

    def __init__(self, idle_s: float, clock: Clock, limits: dict[str, float]) -> None:
        watched, self.clock = self, clock
        self.made = self.received = self.paused = self.resumed = 0
        self.paused_at = self.lost_at = 0.0
        self.unsent: Callable[[], int] = lambda: 0
        self.buffer_bytes = int(limits.pop("buffer_bytes", 0))

        class Noted(limited(idle_s)):  # type: ignore[misc]
            def connection_made(self, transport: Any) -> None:
                if watched.buffer_bytes:
                    kernels = transport.get_extra_info("socket")
                    kernels.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, watched.buffer_bytes)
                super().connection_made(transport)
                watched.made += 1

            def connection_lost(self, exc: Exception | None) -> None:
                watched.lost_at = self.loop.time()
                super().connection_lost(exc)

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                watched.unsent = self.transport.get_write_buffer_size
                watched.received += 1

            def pause_writing(self) -> None:
                super().pause_writing()
                watched.paused += 1
                watched.paused_at = self.loop.time()

            def resume_writing(self) -> None:
                super().resume_writing()
                watched.resumed += 1

        for name, value in limits.items():
            setattr(Noted, name, value)
        self.config = uvicorn.Config(
            endless, http=Noted, lifespan="off", log_level="error", timeout_graceful_shutdown=1
        )

    def connected(self, sock: socket.socket) -> None:
        """Wait until the server knows a new connection, whose time then runs."""
        made = self.made
        sock.connect(self.address)
        until(lambda: self.made > made)


@contextmanager
def watched(idle_s: float, clock: Clock | None = None, **limits: float) -> Iterator[Watched]:
    """A server in a thread, with these limits; without a clock, time passes by itself."""
    loop = clock or asyncio.new_event_loop()
    found = Watched(idle_s, loop, limits)  # type: ignore[arg-type]
    server = uvicorn.Server(found.config)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        found.address = sock.getsockname()[:2]
        thread = threading.Thread(
            target=lambda: loop.run_until_complete(server.serve(sockets=[sock]))
        )
        thread.start()
        try:
            yield found
        finally:
            server.should_exit = True
            while thread.is_alive():
                if clock is not None:
                    loop.call_soon_threadsafe(setattr, clock, "now", clock.now + 0.2)
                thread.join(0.02)
            loop.close()


@contextmanager
def answering(idle_s: float, **limits: float) -> Iterator[Any]:
    """The address of a server in a thread, with these limits."""
    with watched(idle_s, **limits) as one:
        yield one.address
