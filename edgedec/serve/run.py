"""Runs a server until a signal ends it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from types import FrameType

import uvicorn

from edgedec.errors import InputError
from edgedec.pipeline import Pipeline
from edgedec.serve.app import Routes
from edgedec.serve.models import Models
from edgedec.serve.protocol import HEAD_BYTES, limited
from edgedec.serve.settings import Settings

KEY = "EDGEDEC_API_KEY"
_LEAST_KEY, _MOST_KEY, _MOST_KEYS = 16, 4096, 1 << 16
_BACKLOG = 1024
# Of the seconds until the end, those in which texts go on; the rest is for their last words.
_GOING_ON, _LEAST_REST_S = 0.8, 0.5
# Seconds that Python lets a thread compute while another waits for its turn. The decoding thread
# waits for nothing, so with Python's own 0.005 a first token would lie here for about as long.
_SWITCH_S = 0.0005


def serve(
    pipeline: Pipeline,
    settings: Settings,
    sock: socket.socket,
    *,
    memory: int | str | None = None,
    announce: Callable[[], object] = lambda: None,
) -> None:
    """Serve a pipeline over a bound socket, until SIGINT or SIGTERM.

    Args:
        pipeline: opened with ``settings.parallel``; used by the server alone.
        sock: see ``bound``.
        memory: the limit that the pipeline was opened with.
        announce: see ``serve_models``.

    """
    serve_models(Models.alone(pipeline, settings, memory), sock, announce)


def serve_models(
    models: Models, sock: socket.socket, announce: Callable[[], object] = lambda: None
) -> None:
    """Serve models over a bound socket, until SIGINT or SIGTERM; closes those that it opens.

    Args:
        models: what is served.
        sock: see ``bound``.
        announce: called once such a signal ends the server in order.

    """
    settings = models.settings
    config = uvicorn.Config(
        Routes(models).app(),
        http=limited(settings.limits.idle_s),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=10,
    )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # prompts come one by one
    try:
        with _signals_end_quietly() as early, _threads_switch_often():
            announce()
            Server(config, models, early).run(sockets=[sock])
    finally:
        models.close()


class Server(uvicorn.Server):
    """Uvicorn's server, whose requests end in order after a signal.

    Args:
        early: signals that came before it runs.

    """

    def __init__(self, config: uvicorn.Config, models: Models, early: list[int]) -> None:
        super().__init__(config)
        self._models, self._early = models, early
        self._hurry = asyncio.Event()
        self._draining = False
        self._until = 0.0  # texts go on until then, on the clock of ``perf_counter``

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; at once at a second signal.

        SIGTERM comes from a supervisor: what has come is finished, and health checks are answered
        meanwhile. SIGINT comes from a person, who does not wait for the queue.
        """
        if self._draining or self.should_exit:
            self._hurry.set()
        else:
            self._until = perf_counter() + _GOING_ON * self._models.settings.grace_s
            if sig == signal.SIGTERM:
                self._draining = True
                self._models.drain()
                return
        super().handle_exit(sig, frame)
        self.force_exit = False  # which would leave texts without an end

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop listening; while draining, once all is answered or time is up."""
        while self._early:
            self.handle_exit(self._early.pop(0), None)
        over = self._models.idle or perf_counter() >= self._until
        self.should_exit |= self._draining and over
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse what waits, let texts go on for the rest of their time, then end them."""
        self._models.end()
        ending = asyncio.create_task(self._end(self._models.settings.grace_s))
        await super().shutdown(sockets)
        ending.cancel()

    async def _end(self, grace_s: float) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), max(0.0, self._until - perf_counter()))
        self._models.end_texts()
        await asyncio.sleep(max(_LEAST_REST_S, (1 - _GOING_ON) * grace_s))
        for connection in list(self.server_state.connections):  # whose clients take no more
            connection.transport.abort()


@contextmanager
def _signals_end_quietly() -> Iterator[list[int]]:
    """Yield the signals that come before uvicorn takes them.

    It ends at signals and then raises them again, for the handlers before its own.
    """
    came: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _: came.append(number))
        for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address.

    Raises:
        InputError: the address is not this machine's, or the port is taken.

    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host {host}: expected a name or address of this machine") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # elsewhere this lets another program take the port over
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise InputError(
            f"--host {host} --port {port}: {error.strerror}: choose another port, or 0 for any"
        ) from None
    return sock


def url(sock: socket.socket) -> str:
    """Return the address of a bound socket, as a browser takes it."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def read_keys(file: Path | None) -> tuple[str, ...]:
    """Return the API keys of a file, one a line, or that of the environment; there may be none.

    Raises:
        InputError: they cannot be read, or one is too short to be a secret.

    """
    where, found = KEY, os.environ.get(KEY)
    if file is not None:
        where = str(file)
        try:
            with file.open("rb") as stream:
                found = stream.read(_MOST_KEYS).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{file}: expected a file with the API key, in ASCII") from None
    if found is None:
        return ()
    keys = tuple(dict.fromkeys(key.strip() for key in found.split("\n")))
    for key in keys:
        if not _LEAST_KEY <= len(key) < _MOST_KEY or not key.isascii() or not key.isprintable():
            raise InputError(
                f"{where}: expected a key of at least {_LEAST_KEY} printable characters, or several"
                " on lines of their own: make one with `openssl rand -hex 24`"
            )
    return keys


def check_exposed(host: str, keys: Sequence[str]) -> None:
    """Refuse to serve other machines without a key; InputError if it would."""
    if not keys and not is_loopback(host):
        raise InputError(
            f"--host {host}: other machines could use the model: give a key with --api-key-file or"
            f" {KEY}, or leave --host out"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
