"""Settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on every request.

    Attributes:
        body_bytes: of a request.
        body_s: seconds in which a request must have arrived.
        text_s: seconds from a request's arrival to the end of its text.
        choices: texts of one request.
        stops: stop strings of one request; ``stop_chars`` of each.
        unread_tokens: tokens that a client may leave unread; its text then ends, since decoding
            never waits for a reader.
        idle_s: seconds in which a connection must take or send something.

    """

    body_bytes: int = 4 << 20
    body_s: float = 30.0
    text_s: float = 600.0
    choices: int = 8
    stops: int = 16
    stop_chars: int = 1000
    unread_tokens: int = 2048
    idle_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server.

    Attributes:
        name: the model's id in the API; ``aliases`` are other names for it.
        planning: the command that makes a plan of the model; "" if callers are not told.
        strict: whether requests for any other name are refused; else the model answers them.
        host: the address it listens on.
        key: required with every request but ``/health``, ``/livez`` and the page; None requires
            none.
        hosts: names, besides addresses and ``localhost``, by which the server may be called.
        origins: of web pages, besides its own, that may call it.
        parallel: texts that take turns.
        queue: requests that may wait for a turn.
        keep_s: seconds for which one of several models stays loaded after its last text.
        grace_s: seconds from a signal to the end of answers.
        private: whether no request may use what the prompt of another left in the cache.
        limits: on every request.

    """

    name: str
    aliases: tuple[str, ...] = ()
    planning: str = ""
    strict: bool = False
    host: str = "127.0.0.1"
    key: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    parallel: int = 4
    queue: int = 64
    keep_s: float = 300.0
    grace_s: float = 5.0
    private: bool = False
    limits: Limits = field(default_factory=Limits)
