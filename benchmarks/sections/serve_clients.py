"""Clients of a server whose waits are measured during attacks, and bodies to attack with."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from time import perf_counter
from typing import Any, TypeVar

from benchmarks.sections.serve import asked, events
from edgedec.errors import EdgedecError

C = TypeVar("C", bound="Client")
# An ordinary request.
PROMPT, TOKENS = [5, 6, 7], 8
_REST_S = 0.01


class Client(ABC):
    """A thread that calls the server until the context ends.

    Args:
        address: host and port.
        patience_s: longest wait for an answer.

    Attributes:
        times: seconds that it waited for each answer.
        asked_at: since when it waits for the next one; None while it does not.
        failed: requests that ended otherwise than they should.

    """

    def __init__(self, address: str, patience_s: float) -> None:
        self._address, self._patience_s = address, patience_s
        self.times: list[float] = []
        self.asked_at: float | None = None
        self.failed = 0
        self._begun, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._call)
        self.join = self._thread.join

    def __enter__(self: C) -> C:
        self._thread.start()
        if not self._begun.wait(self._patience_s):
            self._over.set()
            raise EdgedecError("the server does not answer before it is attacked")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def longest_s(self) -> float:
        """Return the longest wait, the current one included."""
        asked_at = self.asked_at
        return max([*self.times, 0.0 if asked_at is None else perf_counter() - asked_at])

    def _answered(self, now: float) -> None:
        if self.asked_at is not None:
            self.times.append(now - self.asked_at)
        self._begun.set()

    @abstractmethod
    def _call(self) -> None:
        """Call the server until the context ends."""


class Stream(Client):
    """Streams texts, one after another until one fails; waits for the next event of each.

    Args:
        address: host and port.
        text: fields of a text's request.
        patience_s: longest wait for an event.

    """

    def __init__(self, address: str, text: dict[str, Any], patience_s: float) -> None:
        super().__init__(address, patience_s)
        self._text = text
        self._last: tuple[str, ...] = ()

    def ended_in_order(self) -> bool:
        """Return whether the last text ended with an error and ``[DONE]``."""
        return len(self._last) == 2 and '"error"' in self._last[0] and self._last[1] == "[DONE]"

    def _call(self) -> None:
        with suppress(OSError, HTTPException, EdgedecError):
            while not self._over.is_set() and not self.ended_in_order():
                self.asked_at = None
                self._read_text()
        self.failed += not self._over.is_set()

    def _read_text(self) -> None:
        for data in events(self._address, self._text, self._patience_s):
            now = perf_counter()
            self._answered(now)
            self.asked_at, self._last = now, (*self._last[-1:], data)
            if self._over.is_set():
                break


class Health(Client):
    """Asks for ``/health``, each time over a new connection.

    Args:
        address: host and port.
        patience_s: longest wait for an answer.
        accepted: the statuses that are answers.

    """

    def __init__(self, address: str, patience_s: float, accepted: Collection[int] = (200,)) -> None:
        super().__init__(address, patience_s)
        self._accepted = accepted

    def _call(self) -> None:
        while not self._over.is_set():
            self.asked_at = perf_counter()
            found = status(self._address, "GET", "/health", b"", self._patience_s)
            if found in self._accepted:
                self._answered(perf_counter())
            else:
                self.failed += 1
            self.asked_at = None
            self._over.wait(_REST_S)


def answered_s(address: str, patience_s: float) -> float | None:
    """Return the seconds that a request for a few tokens takes; None if it is not answered."""
    try:
        return asked(address, PROMPT, TOKENS, patience_s).total_s
    except (OSError, HTTPException, EdgedecError):
        return None


def status(address: str, method: str, path: str, content: bytes, patience_s: float) -> int:
    """Return the status of a server's answer; 0 without one."""
    connection = HTTPConnection(address, timeout=patience_s)
    headers = {"Content-Type": "application/json"} if content else {}
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may answer before the end
            connection.request(method, path, content or None, headers)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


def refused(size: int) -> list[tuple[str, bytes]]:
    """Return routes and bodies of about this many bytes, each too long in another way."""
    words, accents = "word " * (size // 5), "é" * (size // 2)
    tokens = 150_000
    spaced = f",{' ' * (size // tokens - 2)}7" * tokens
    texts: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": words}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": words}]}),
        ("/tokenize", {"prompt": accents}),
    ]
    found = [(path, {"model": "bench", **fields}) for path, fields in texts]
    bodies = [(path, json.dumps(one, ensure_ascii=False).encode()) for path, one in found]
    for prompt in ("7" + ",7" * (size // 2), "7" + spaced):  # too many values, too many tokens
        raw = f'{{"model": "bench", "prompt": [{prompt}]}}'
        bodies.append(("/v1/completions", raw.encode()))
    return bodies
