"""Clients of mixed behaviour, most of them bad, all at once, each from an address of its own.

Addresses are those of loopback (127.0.0.0/8, which Linux takes as they are), so that none is turned
away for what another one does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import perf_counter

from benchmarks.sections.serve_clients import PROMPT, TOKENS

# Between two bytes of a slow client, and between two visits of any.
_REST_S, _AWAY_S = 0.5, 2.0
_BODY = {"model": "bench", "prompt": PROMPT, "temperature": 0}
# Requests that a client sends before it reads any answer.
_PIPELINED = 10
# A peer's buffer is this small where nothing is taken, so that the server has to wait.
_SMALL_BUFFER = 4096


class Visit:
    """One connection of a client.

    Args:
        address: host and port of the server.
        host: where the client is.
        over: set when all clients are to leave.

    """

    def __init__(self, address: str, host: str, over: asyncio.Event) -> None:
        self._address, self._host, self._over = address, host, over

    async def open(self, *, deaf: bool = False) -> None:
        """Connect; a deaf one has room for little."""
        host, port = self._address.rsplit(":", 1)
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if deaf:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
            sock.bind((self._host, 0))
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            limit = _SMALL_BUFFER if deaf else 1 << 16
            self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=limit)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Leave without a word."""
        if hasattr(self, "_writer"):
            self._writer.transport.abort()

    async def rest(self, seconds: float = _REST_S) -> None:
        """Wait a little, or until all are to leave."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    async def send(self, data: bytes) -> None:
        """Send; what does not fit waits."""
        self._writer.write(data)
        await self._writer.drain()

    async def trickle(self, data: bytes) -> None:
        """Send a byte at a time, until the server has had enough."""
        for at in range(len(data)):
            await self.send(data[at : at + 1])
            await self.rest()
            if self._over.is_set() or self._reader.at_eof():
                return

    async def status(self) -> int:
        """Return the status of the answer; 0 without one."""
        words = (await self._reader.readline()).split()
        return int(words[1]) if len(words) > 1 else 0

    async def until_end(self) -> None:
        """Take everything, until the server ends the connection."""
        while await self._reader.read(1 << 16):
            pass


def _post(**fields: object) -> bytes:
    body = json.dumps({**_BODY, **fields}).encode()
    return _head("POST", "/v1/completions", len(body)) + body


def _head(method: str, path: str, length: int = 0, more: str = "Connection: close\r\n") -> bytes:
    body = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}{body}\r\n".encode()


async def _slow_head(visit: Visit) -> str:
    await visit.open()
    await visit.trickle(_head("GET", "/health"))
    return "left"


async def _slow_body(visit: Visit) -> str:
    await visit.open()
    await visit.send(_head("POST", "/v1/completions", 4096))
    await visit.trickle(b" " * 4096)
    return "left"


async def _takes_nothing(visit: Visit) -> str:
    await visit.open(deaf=True)
    await visit.send(_post(stream=True, max_tokens=4096))
    while not visit._over.is_set() and not visit._writer.is_closing():
        await visit.rest()
    return "left"


async def _pipelines(visit: Visit) -> str:
    await visit.open(deaf=True)
    await visit.send(_head("GET", "/v1/models", more="") * _PIPELINED)
    await visit.rest()
    return str(await visit.status())


async def _breaks_json(visit: Visit) -> str:
    await visit.open()
    body = b'{"prompt": [5, 6' + b"[" * 2000
    await visit.send(_head("POST", "/v1/completions", len(body)) + body)
    return str(await visit.status())


async def _cuts(visit: Visit) -> str:
    await visit.open()
    await visit.send(_post(stream=True, max_tokens=256))
    return str(await visit.status())  # and leaves in the middle


async def _is_honest(visit: Visit) -> str:
    await visit.open()
    await visit.send(_post(stream=True, max_tokens=TOKENS))
    found = await visit.status()
    await visit.until_end()
    return str(found)


async def _asks_health(visit: Visit) -> str:
    await visit.open()
    await visit.send(_head("GET", "/health"))
    found = await visit.status()
    await visit.until_end()
    return str(found)


KINDS: dict[str, Callable[[Visit], Awaitable[str]]] = {
    "slow head": _slow_head,
    "slow body": _slow_body,
    "takes nothing": _takes_nothing,
    "pipelines": _pipelines,
    "broken JSON": _breaks_json,
    "cut stream": _cuts,
    "honest stream": _is_honest,
    "health": _asks_health,
}


class Mix:
    """Runs clients of all kinds in turn in a process of their own, until the context ends.

    Beside the clients whose waits are measured, in one process, they would make those wait.

    Args:
        address: host and port of the server.
        count: number of clients.

    Attributes:
        began: visits that were begun, by kind.
        became: what became of those that ended, by kind and status; ``lost`` where the server ended
            the connection, and ``left`` where it was still there when all left.

    """

    def __init__(self, address: str, count: int) -> None:
        self._command = [sys.executable, "-m", __name__, address, str(count)]
        self.began: Counter[str] = Counter()
        self.became: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Mix:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()
        self._process.wait()

    def wait(self, visits: int, patience_s: float) -> bool:
        """Wait until this many visits of every kind have begun; return whether they have."""
        end = perf_counter() + patience_s
        while min(self.began[kind] for kind in KINDS) < visits:
            if perf_counter() > end or self._process.poll() is not None:
                return False
            threading.Event().wait(_REST_S)
        return True

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.began, self.became = map(Counter, json.loads(line))


class _Clients:
    """The clients, in their own process."""

    def __init__(self, address: str, count: int) -> None:
        self._address, self._count = address, count
        self._began: Counter[str] = Counter()
        self._became: Counter[str] = Counter()

    async def run(self) -> None:
        """Run them until standard input ends; print counts now and then."""
        loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        leave = partial(loop.call_soon_threadsafe, self._over.set)
        threading.Thread(target=lambda: (sys.stdin.read(), leave()), daemon=True).start()
        kinds = itertools.islice(itertools.cycle(KINDS), self._count)
        clients = [self._client(number, kind) for number, kind in enumerate(kinds)]
        await asyncio.gather(self._report(), *clients)
        self._tell()

    async def _report(self) -> None:
        while not self._over.is_set():
            self._tell()
            await asyncio.sleep(_REST_S)

    def _tell(self) -> None:
        sys.stdout.write(f"{json.dumps([self._began, self._became])}\n")
        sys.stdout.flush()

    async def _client(self, number: int, kind: str) -> None:
        host = f"127.{1 + number // 250}.0.{1 + number % 250}"
        await asyncio.sleep(_AWAY_S * number / self._count)  # not all at one moment
        while not self._over.is_set():
            visit = Visit(self._address, host, self._over)
            self._began[kind] += 1
            work = asyncio.ensure_future(KINDS[kind](visit))
            leaving = asyncio.ensure_future(self._over.wait())
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                try:
                    self._became[f"{kind}: {await work}"] += 1
                except (OSError, ValueError):
                    self._became[f"{kind}: lost"] += 1
            visit.close()
            await visit.rest(_AWAY_S)


def settled(read: Callable[[], int], most: int, patience_s: float) -> int:
    """Return a figure once it is at most this, or when patience ends."""
    end = perf_counter() + patience_s
    while (found := read()) > most and perf_counter() < end:
        threading.Event().wait(_REST_S)
    return found


if __name__ == "__main__":
    asyncio.run(_Clients(sys.argv[1], int(sys.argv[2])).run())
