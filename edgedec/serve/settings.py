"""Settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgedec._support.options import option


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
        planning: the command that makes a plan of the model; "" if callers are not told.
        keys: one of them is required with every request but ``/health``, ``/livez`` and the page;
            none if there are none. Drafts are copied from earlier texts of the same key.
        keep_s: seconds for which one of several models stays loaded after its last text.

    """

    # fmt: off
    name: str = option("", "The model's id in the API; default: its name.", metavar="ID")
    aliases: tuple[str, ...] = ()
    planning: str = ""
    strict: bool = option(
        False, "Refuse requests for a model of another name, with status 404. By default this model"
        " answers them, and the header X-Edgedec-Model says so.", name="strict_model",
    )
    host: str = option(
        "127.0.0.1", "Address to listen on; one that other machines can reach needs an API key.",
        metavar="ADDRESS", shows=True,
    )
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = option(
        (), "Another name of this machine to accept as Host; repeatable.", name="allow_host",
        metavar="NAME",
    )
    origins: tuple[str, ...] = option(
        (), "A web page's origin, such as http://localhost:3000, that may call the API;"
        " repeatable.", name="allow_origin", metavar="ORIGIN",
    )
    parallel: int = option(
        4, "Requests decoded at a time, by turns, round by round.", metavar="N", least=1, most=64,
        shows=True,
    )
    queue: int = option(
        64, "Further requests that may wait; more are answered with status 429.", metavar="N",
        least=0, shows=True,
    )
    keep_s: float = 300.0
    grace_s: float = option(
        5.0, "Most time from SIGTERM or Ctrl-C to the end of all answers; the server ends with the"
        " step under way. Texts go on for four fifths of it. After SIGTERM, requests that wait are"
        " decoded too.", name="grace", metavar="SECONDS", least=0, shows=True,
    )
    private: bool = option(
        False, "Read every prompt from its first token, so that cached_tokens and times do not tell"
        " a client what others asked.", name="private_cache",
    )
    # fmt: on
    limits: Limits = field(default_factory=Limits)
