"""Finds this process's connections, which llama.cpp holds and does not show."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress

_MOST_FILES = 4096
# Without any answer of the other machine's system for this long, a connection is given up.
SILENCE_S = 30.0
_ASKED = 3


def connections() -> Iterator[tuple[tuple[str, int], socket.socket]]:
    """Yield the far address of this process's IPv4 connections, and each until the next."""
    for number in range(3, _MOST_FILES):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                if connection.family == socket.AF_INET:
                    yield connection.getpeername(), connection


def is_alive(connection: socket.socket) -> bool:
    """Return whether a connection has neither ended nor failed; its data are left in it."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)))
    except BlockingIOError:
        return True
    except OSError:
        return False


def keep_asking(connection: socket.socket) -> None:
    """Have the system ask the other side whether it is there, also while it computes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every = max(1, round(SILENCE_S / _ASKED))
    for name, value in (
        ("TCP_KEEPIDLE", every), ("TCP_KEEPALIVE", every), ("TCP_KEEPINTVL", every),
        ("TCP_KEEPCNT", _ASKED), ("TCP_USER_TIMEOUT", round(SILENCE_S * 1e3)),
    ):  # fmt: skip
        if (option := getattr(socket, name, None)) is not None:  # not every system has each
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
