"""Connects to a Ray cluster; what can go wrong there is one line."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from edgedec._support import installation
from edgedec._support.child import TOOK_LONGER
from edgedec._support.fields import one_line
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import ExtraMissing, InputError, RuntimeUnavailable

AUTO = "auto"
CHILD = "edgedec.cluster._probe_child"
_PATIENCE_S, _LONGEST_S = 5.0, 60.0
# How a client of HTTP/2 begins, which gRPC is built on, and the kind of the first answer to it.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_BYTES, _KIND, _SETTINGS = 9, 3, 4
_STDERR = 2
_START = "start one with `ray start --head`, or give --ray HOST:PORT of its head"
_TOKEN = (
    "one with a token needs RAY_AUTH_MODE=token, and ~/.ray/auth_token of its head on this machine"
)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Be a driver of a cluster of which this machine is a node, while the block runs.

    Args:
        address: ``HOST:PORT`` of the head, or ``auto`` for the cluster of this machine.

    Raises:
        RuntimeUnavailable: no Ray, no cluster, another version of Ray or Python, or no access.
        InputError: not an address.

    """
    ray = check(address)
    try:
        with _without_warnings():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError:  # also of a cluster whose token this machine does not have
        if address == AUTO:
            raise RuntimeUnavailable(f"no Ray cluster runs here: {_START}; {_TOKEN}") from None
        raise RuntimeUnavailable(
            f"the cluster at {address} does not let this machine in: {_TOKEN}"
        ) from None
    except Exception as error:  # whatever Ray raises about versions, access or this node
        raise RuntimeUnavailable(_said(address, error)) from None
    # Ray prints there what befalls other nodes, in paragraphs; a run says that in lines.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), _stopped_by_sigterm():
        try:
            yield
        finally:
            with suppress(Exception):  # nothing to do about a cluster that is gone
                ray.shutdown()


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C: Ray would print where it was in its code and end the process."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Discard what is written to standard error, as Ray's core does once a second while it tries.

    Its level of logging is set by the environment alone, which it remarks on in a line of its own.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(_STDERR), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(nowhere)


def _ray() -> Any:
    # Ray reports to its makers what runs on a cluster, unless told otherwise; it asks at import.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ExtraMissing(installation.needs("--ray", "ray", error.name or "ray")) from None
    return ray


def check(address: str) -> Any:
    """Return Ray; refuse what is not an address, or where no gRPC server listens.

    Ray itself would try for minutes.

    Raises:
        InputError: it is not HOST:PORT.
        RuntimeUnavailable: no Ray is installed, nothing or something else listens there, or it
            answers and goes no further.

    """
    host, _, port = address.rpartition(":")
    if address != AUTO and (not host or not port.isdecimal() or "/" in address):
        raise InputError(f"--ray {one_line(address)}: expected HOST:PORT of the cluster's head")
    ray = _ray()
    if address != AUTO and not answers(address):
        raise RuntimeUnavailable(f"no Ray cluster answers at {address}: {_START}")
    if address != AUTO and not _speaks(address):
        raise RuntimeUnavailable(f"what listens at {address} is no head of a Ray cluster: {_START}")
    if address != AUTO and not _lets_in(address):
        raise RuntimeUnavailable(
            f"the cluster at {address} has not let this machine in for {_LONGEST_S:g} seconds:"
            f" {_START}"
        )
    return ray


def answers(address: str) -> bool:
    """Return whether anything listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError):
        return False
    return True


def _speaks(address: str) -> bool:
    """Return whether a server at HOST:PORT speaks HTTP/2, or what Ray's settings make of that."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True
    host, _, port = address.rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S) as connection:
            connection.sendall(_HELLO)
            while len(answer) < _FRAME_BYTES:
                more = connection.recv(_FRAME_BYTES - len(answer))
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    return answer[_KIND] == _SETTINGS


def _lets_in(address: str) -> bool:
    """Return False if a child process waits in vain to join; its other failures are Ray's to say.

    Ray waits for minutes without heeding signals where a head answers but goes no further.
    """
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_LONGEST_S)
    try:
        ask_once(CHILD, {"address": address}, limits, environment={})
    except Stopped as error:
        return not str(error).startswith(TOOK_LONGER)
    except Refused:
        pass
    return True


def _said(address: str, error: Exception) -> str:
    text = one_line(" ".join(str(error).split()))
    where = "the cluster" if address == AUTO else f"the cluster at {address}"
    if "mismatch" in text.lower():
        return f"{where} has another version of Ray or Python than this machine: {text}"
    if "uthenticat" in f"{type(error).__name__} {text}":
        return f"{where} does not let this machine in: {_TOKEN}"
    return f"{where} cannot be used from here: {text}"
