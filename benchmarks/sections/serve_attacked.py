"""Measures what ``edgedec serve`` promises to its clients while others attack it.

Attacks and clients are threads of this process and call the server over loopback.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.bundles import Suite
from benchmarks.sections.serve import Running, server
from benchmarks.sections.serve_clients import (
    PROMPT,
    Health,
    Stream,
    answered_s,
    refused,
    status,
)  # fmt: skip
from benchmarks.sections.serve_mixed import KINDS, Mix, settled
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.text.tokenizer import Tokenizer

MEMORY, GRACE_S = 500_000_000, 5.0
_REFUSED = frozenset({400, 413, 429, 503})
# What /health says: a server with a full queue says so, and promises to say it soon.
_HEALTH = frozenset({200, 503})
# Descriptors and threads of a server without clients are fewer.
_FEW = 32
_POLL_S = 0.01
# Open files of this process besides the connections of an attack.
_OTHER_FILES = 100


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the attacks are, and what counts as a promise kept.

    Attributes:
        refused, within_memory: numbers of bodies that are to be refused, of ``body_bytes`` each.
        unfinished: number of unfinished bodies, of ``unfinished_bytes`` each.
        silent: number of connections that send nothing.
        mixed: clients of mixed behaviour, for ``mixed_s`` seconds and at least until two visits of
            each kind have begun.
        grown_bytes, grown: of memory, and of descriptors and threads, that a server may hold more
            after the mix than before it; the keys and values of a whole context are 67 MB.
        streams: texts that run when the server is told to end.
        ends: ids of tokens that end a text; a text that must go on never has them.
        promised_s: longest wait of ``/health``, and for the next token of a text.
        memory: bytes that the server may hold, given as ``--memory``.
        settles_s: seconds after which memory is read that a server still holds.
        patience_s: longest wait for anything.

    """

    refused: int = 20
    within_memory: int = 8
    unfinished: int = 120
    silent: int = 1100
    mixed: int = 1000
    mixed_s: float = 120.0
    grown_bytes: int = 100_000_000
    grown: int = 8
    streams: int = 3
    body_bytes: int = 3_900_000
    unfinished_bytes: int = 4_000_000
    ends: frozenset[int] = frozenset()
    promised_s: float = 0.2
    memory: int = MEMORY
    settles_s: int = 5
    patience_s: float = 60.0

    def text(self) -> dict[str, Any]:
        """Return the fields of a request for as long a text as there can be."""
        bias = {str(token): -100 for token in self.ends}
        return {"prompt": PROMPT, "max_tokens": 1 << 20, "n": 8, "logit_bias": bias}


def serve_attacked(suite: Suite, recorder: Recorder) -> list[Row]:
    """Attack servers of the shipped pair, and measure what other clients notice."""
    tokenizer = Tokenizer.load(suite.bundles.checkpoint("target"))
    return run(suite, recorder, Scale(ends=tokenizer.special_ids))


def run(suite: Suite, recorder: Recorder, scale: Scale) -> list[Row]:
    """Run every attack on a server of its own; a row ``holds`` if the promise was kept."""
    rows = []
    for name, attack in ATTACKS.items():
        options = ("--memory", f"{scale.memory // 10**6}MB") if attack is within_memory else ()
        with server(suite, "demo", *options) as running:
            row = {"attack": name, **attack(running, scale)}
        recorder.add(kind="attack", **row)
        rows.append(row)
    return rows


def refused_bodies(running: Running, scale: Scale) -> Row:
    """Send large bodies, all at once, while a text is streamed and ``/health`` is asked."""
    alone_s = answered_s(running.address, scale.patience_s)
    with (
        Stream(running.address, scale.text(), scale.patience_s) as stream,
        Health(running.address, scale.patience_s) as health,
    ):
        with ThreadPoolExecutor(scale.refused) as pool:
            began = perf_counter()
            sent = _sent(pool, running, scale, scale.refused)
            texts_s = [answered_s(running.address, scale.patience_s)]
            while any(not one.done() for one in sent):
                texts_s.append(answered_s(running.address, scale.patience_s))
            seconds = perf_counter() - began
        longest_gap_s, longest_wait_s = stream.longest_s(), health.longest_s()
        failed = stream.failed + health.failed
    statuses = Counter(one.result() for one in sent)
    in_time = max(longest_gap_s, longest_wait_s) <= scale.promised_s
    answered = not failed and None not in texts_s
    return {
        "clients": scale.refused,
        "seconds": seconds,
        "statuses": _named(statuses),
        "health_s": longest_wait_s,
        "health_requests": len(health.times),
        "gap_s": longest_gap_s,
        "stream_events": len(stream.times),
        "failed": failed,
        "request_s": None if None in texts_s else max(filter(None, texts_s)),
        "requests": len(texts_s),
        "request_alone_s": alone_s,
        "peak_bytes": _memory(running, "VmHWM"),
        "holds": in_time and answered and statuses.keys() <= _REFUSED,
    }


def within_memory(running: Running, scale: Scale) -> Row:
    """Send large bodies, all at once, to a server with ``--memory``; see what it holds after."""
    before = _memory(running, "VmRSS")
    with ThreadPoolExecutor(scale.within_memory) as pool:
        statuses = Counter(one.result() for one in _sent(pool, running, scale, scale.within_memory))
    peak, held, ended = _memory(running, "VmHWM"), list[int](), perf_counter()
    while len(held) <= scale.settles_s:
        if perf_counter() - ended >= len(held):
            held.append(_memory(running, "VmRSS"))
        sleep(_POLL_S)
    return {
        "clients": scale.within_memory,
        "memory": scale.memory,
        "statuses": _named(statuses),
        "before_bytes": before,
        "peak_bytes": peak,
        "bytes_by_second": held,
        "after_bytes": held[-1],
        "holds": peak <= scale.memory and statuses.keys() <= _REFUSED,
    }


def unfinished_bodies(running: Running, scale: Scale) -> Row:
    """Send bodies without their last byte, keep the connections, and then drop them."""

    def begin() -> socket.socket | None:
        """Return a connection; None if the server ended it before all was sent."""
        sock = stack.enter_context(_connected(running, scale))
        try:
            sock.sendall(head + b"x" * (scale.unfinished_bytes - 1))
        except OSError:
            return None
        return sock

    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {scale.unfinished_bytes}\r\n\r\n"
    ).encode()
    with ExitStack() as stack, _files(scale.unfinished):
        with ThreadPoolExecutor(scale.unfinished) as pool:
            sent = [pool.submit(begin) for _ in range(scale.unfinished)]
            sending_s = answered_s(running.address, scale.patience_s)
            wait(sent)
        meanwhile_s = answered_s(running.address, scale.patience_s)
    after_s = answered_s(running.address, scale.patience_s)
    return {
        "connections": scale.unfinished,
        "sent_whole": sum(one.result() is not None for one in sent),
        "request_while_sending_s": sending_s,
        "request_meanwhile_s": meanwhile_s,
        "request_after_s": after_s,
        "peak_bytes": _memory(running, "VmHWM"),
        "holds": None not in (sending_s, meanwhile_s, after_s),
    }


def silent_connections(running: Running, scale: Scale) -> Row:
    """Open connections that send nothing, and then ask for a text."""
    with ExitStack() as stack, _files(scale.silent):
        opened = []
        began = perf_counter()
        for _ in range(scale.silent):
            opened.append(stack.enter_context(_connected(running, scale)))
        opening_s = perf_counter() - began
        request_s = answered_s(running.address, scale.patience_s)
        left = sum(map(_is_open, opened))
    return {
        "connections": scale.silent,
        "opening_s": opening_s,
        "left_open": left,
        "request_s": request_s,
        "holds": request_s is not None,
    }


def mixed_clients(running: Running, scale: Scale) -> Row:
    """Have clients of every kind at once, while a text is streamed and ``/health`` is asked.

    Twice: what a server keeps of its texts for the next ones is there after the first time.
    """
    _mixed(running, scale)
    names = ("fd", "task")
    before = {
        name: settled(partial(_entries, running, name), _FEW, scale.patience_s) for name in names
    }
    before_bytes = _memory(running, "VmRSS")
    noticed = _mixed(running, scale)
    most = {name: count + scale.grown for name, count in before.items()}
    after = {
        name: settled(partial(_entries, running, name), most[name], scale.patience_s)
        for name in names
    }
    answered = answered_s(running.address, scale.patience_s)
    after_bytes = _memory(running, "VmRSS")
    in_time = max(noticed["health_s"], noticed["gap_s"]) <= scale.promised_s
    grew = after_bytes - before_bytes > scale.grown_bytes or any(
        after[name] > most[name] for name in names
    )
    return {
        "clients": scale.mixed,
        **noticed,
        "before_bytes": before_bytes,
        "after_bytes": after_bytes,
        "peak_bytes": _memory(running, "VmHWM"),
        "descriptors": [before["fd"], after["fd"]],
        "threads": [before["task"], after["task"]],
        "holds": in_time
        and noticed["every_kind_came"]
        and not noticed["failed"]
        and not grew
        and answered is not None,
    }


def _mixed(running: Running, scale: Scale) -> Row:
    """Return what came of the clients, and what others noticed of them."""
    with (
        Stream(running.address, scale.text(), scale.patience_s) as stream,
        Health(running.address, scale.patience_s, accepted=_HEALTH) as health,
        _files(scale.mixed),
        Mix(running.address, scale.mixed) as mix,
    ):
        sleep(scale.mixed_s)
        came = mix.wait(2, scale.patience_s)
        gap_s, health_s = stream.longest_s(), health.longest_s()
        failed = stream.failed + health.failed
    return {
        "every_kind_came": came,
        "visits": {kind: mix.began[kind] for kind in KINDS},
        "became": dict(sorted(mix.became.items())),
        "health_s": health_s,
        "health_requests": len(health.times),
        "gap_s": gap_s,
        "stream_events": len(stream.times),
        "failed": failed,
    }


def told_to_end(running: Running, scale: Scale) -> Row:
    """Send SIGTERM while texts are streamed; see how each ends, and the process."""
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream(running.address, scale.text(), scale.patience_s))
            for _ in range(scale.streams)
        ]
        began = perf_counter()
        running.process.send_signal(signal.SIGTERM)
        code, seconds = None, scale.patience_s
        with suppress(subprocess.TimeoutExpired):
            code = running.process.wait(scale.patience_s)
            seconds = perf_counter() - began
            for one in streams:
                one.join()  # reads what has arrived
    orderly = sum(one.ended_in_order() for one in streams)
    traceback = "Traceback" in running.said()
    ended = code == 0 and orderly == scale.streams and not traceback
    return {
        "streams": scale.streams,
        "ended_with_error_and_done": orderly,
        "seconds": seconds,
        "grace_s": GRACE_S,
        "exit_code": code,
        "traceback": traceback,
        "holds": ended and seconds <= GRACE_S,
    }


ATTACKS: dict[str, Callable[[Running, Scale], Row]] = {
    "bodies that are refused": refused_bodies,
    "bodies that are refused, --memory": within_memory,
    "unfinished bodies": unfinished_bodies,
    "silent connections": silent_connections,
    "a mix": mixed_clients,
    "SIGTERM with streams": told_to_end,
}


def _sent(
    pool: ThreadPoolExecutor, running: Running, scale: Scale, count: int
) -> list[Future[int]]:
    """Send bodies that are to be refused, of each kind in turn; return the statuses to come."""
    kinds = refused(scale.body_bytes)
    return [
        pool.submit(status, running.address, "POST", *kinds[place % len(kinds)], scale.patience_s)
        for place in range(count)
    ]


def _named(statuses: Counter[int]) -> dict[str, int]:
    return {str(status): statuses[status] for status in sorted(statuses)}


def _memory(running: Running, name: str) -> int:
    """Return the bytes that the server's process holds (``VmRSS``) or has held (``VmHWM``)."""
    file = Path(f"/proc/{running.process.pid}/status")
    if not file.exists():
        raise EdgedecError(f"{file} is missing: the section needs Linux and a running server")
    lines = file.read_text("ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _entries(running: Running, name: str) -> int:
    """Return how many descriptors (``fd``) or threads (``task``) the server's process has."""
    return len(list(Path(f"/proc/{running.process.pid}/{name}").iterdir()))


def _connected(running: Running, scale: Scale) -> socket.socket:
    host, port = running.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=scale.patience_s)


def _is_open(sock: socket.socket) -> bool:
    """Return whether the server has not closed a connection on which it sent nothing."""
    sock.setblocking(False)
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


@contextmanager
def _files(count: int) -> Iterator[None]:
    """Let this process, but not the server, open this many files more."""
    import resource  # which Windows lacks

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(soft, count + _OTHER_FILES)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise EdgedecError(f"{needed} open files are needed: raise the limit with `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
