"""Connections on which nothing moves, over real sockets."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from kinds import in_full
from serving import Server
from test_serve_guard import BODY, LONG
from timed_server import GET, LEFT, PAGE_BYTES, Clock, Watched, answering, watched
from waiting import LIMIT_S, until


@pytest.fixture
def timed() -> Iterator[Watched]:
    """A server that waits for half a second of its clock."""
    with watched(0.5, Clock()) as one:
        yield one


@contextmanager
def connected(timed: Watched, buffer_bytes: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.settimeout(30)
        if buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        timed.connected(sock)
        yield sock


def is_open(sock: socket.socket) -> bool:
    """Whether a connection without an answer on its way is open."""
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        sock.settimeout(30)


def whole(sock: socket.socket) -> bytes:
    """All that comes until the other side closes; an abortive close is one."""
    found = b""
    try:
        while more := sock.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("data", [b"", GET[:7], GET[:-2]])
def test_a_connection_without_a_request_is_dropped(timed: Watched, data: bytes) -> None:
    with connected(timed) as sock:
        timed.clock.passes(0.4)
        sock.sendall(data)  # a part of a request does not prolong it
        until(lambda: timed.received == bool(data))
        assert is_open(sock)
        timed.clock.passes(0.2)
        assert whole(sock) == b""


def one_answer(sock: socket.socket) -> bytes:
    sock.sendall(GET)
    found = b""
    while not found.endswith(b"0\r\n\r\n"):
        found += sock.recv(65536)
    return found


def test_a_second_request_must_come_in_time_as_well(timed: Watched) -> None:
    with connected(timed) as sock:
        one_answer(sock)
        timed.clock.passes(0.4)
        sock.sendall(GET[:7])
        until(lambda: timed.received == 2)
        timed.clock.passes(0.4)
        assert is_open(sock)
        timed.clock.passes(0.2)
        assert whole(sock) == b""


def test_requests_that_come_in_time_are_answered(timed: Watched) -> None:
    """The control: one connection, longer than the limit in all."""
    with connected(timed) as sock:
        for _ in range(5):
            assert b"done" in one_answer(sock)
            timed.clock.passes(0.4)


def test_a_client_that_takes_nothing_is_dropped(timed: Watched) -> None:
    LEFT.clear()
    with connected(timed) as sock:
        sock.sendall(GET.replace(b"/ ", b"/endless "))
        while not LEFT.is_set():
            until(lambda: timed.paused > timed.resumed or LEFT.is_set())
            timed.clock.passes(0.1)
        assert 0.5 <= timed.lost_at - timed.paused_at < 0.61


def test_a_client_that_takes_something_now_and_then_is_not(timed: Watched) -> None:
    """The control: it waits longer than the limit in all."""
    LEFT.clear()
    with connected(timed) as sock:
        sock.sendall(GET.replace(b"/ ", b"/endless "))
        for _ in range(5):
            until(lambda: timed.paused > timed.resumed)
            timed.clock.passes(0.4)
            resumed = timed.resumed
            while timed.resumed == resumed:
                assert sock.recv(65536)
        assert not LEFT.is_set()
    assert LEFT.wait(LIMIT_S)


@pytest.mark.parametrize("closes", [True, False])
def test_a_page_that_is_not_taken_is_dropped(closes: bool) -> None:
    """It fits in the server's buffer, so nothing pauses; the connection may be closing by then."""
    get = GET.replace(b"/ ", b"/page ")
    if closes:
        get = get.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with watched(0.5, Clock(), buffer_bytes=2048) as timed, connected(timed, 2048) as sock:
        sock.sendall(get)
        until(lambda: timed.unsent() > 0)
        assert timed.paused == 0
        timed.clock.passes(0.45)
        assert timed.lost_at == 0
        timed.clock.passes(0.1)
        until(lambda: timed.lost_at > 0)
        assert len(whole(sock)) < PAGE_BYTES


def test_a_page_that_is_taken_late_comes_whole() -> None:
    """The control."""
    get = GET.replace(b"/ ", b"/page ")
    with watched(0.5, Clock(), buffer_bytes=2048) as timed, connected(timed, 2048) as sock:
        sock.sendall(get)
        until(lambda: timed.unsent() > 0)
        timed.clock.passes(0.45)
        found = b""
        while not found.endswith(b"done\r\n0\r\n\r\n"):
            found += sock.recv(65536)
        assert len(found) > PAGE_BYTES
        timed.clock.passes(0.4)
        assert b"done" in one_answer(sock)


def answer(address: Any) -> bytes:
    with socket.create_connection(address, timeout=LIMIT_S) as sock:
        sock.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return whole(sock)


class TestTooMany:
    @pytest.mark.parametrize("limits", [{"most_of_one": 6}, {"most": 6, "most_of_one": 5}])
    @pytest.mark.parametrize("data", [b"", GET[:7]])
    def test_the_oldest_silent_one_gives_way(self, limits: Any, data: bytes) -> None:
        with answering(60, **limits) as address, ExitStack() as stack:
            silent = []
            for _ in range(20):
                silent.append(
                    stack.enter_context(socket.create_connection(address, timeout=LIMIT_S))
                )
                silent[-1].sendall(data)
                assert b"done" in answer(address)
            left = limits["most_of_one"] - 1
            for sock in silent[:-left]:
                assert whole(sock) == b""
            silent[-1].sendall(GET[len(data) :])
            assert silent[-1].recv(65536).startswith(b"HTTP/1.1 200")

    @pytest.mark.parametrize("limits", [{"most_of_one": 3}, {"most": 3, "most_of_one": 2}])
    def test_who_takes_nothing_gives_way(self, limits: Any) -> None:
        with watched(60, Clock(), linger_s=1, **limits) as timed, ExitStack() as stack:
            stuck = []
            for _ in range(limits["most_of_one"]):
                stuck.append(stack.enter_context(connected(timed)))
                paused = timed.paused
                stuck[-1].sendall(GET.replace(b"/ ", b"/endless "))
                until(lambda before=paused: timed.paused > before)
            timed.clock.passes(0.9)
            with connected(timed) as early:  # nobody is stuck yet
                assert early.fileno()
                lost, made = timed.lost_at, timed.made
                assert (lost, made) == (0, len(stuck) + 1)
            timed.clock.passes(1.2)
            with connected(timed) as late:
                until(lambda: timed.lost_at > 1)
                assert b"done" in one_answer(late)
                whole(stuck[0])  # it ends

    def test_who_is_served_does_not_give_way(self) -> None:
        """Where all others are served, a new one is told to come again, in the API's shape."""
        with (
            answering(60, most=3, most_of_one=3, linger_s=60) as address,
            ExitStack() as stack,
        ):
            served = []
            for _ in range(3):
                served.append(
                    stack.enter_context(socket.create_connection(address, timeout=LIMIT_S))
                )
                served[-1].sendall(GET.replace(b"/ ", b"/endless "))
                assert served[-1].recv(100).startswith(b"HTTP/1.1 200")
            head, _, body = answer(address).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 5" in head
            assert json.loads(body)["error"]["code"] == "crowded"
            for sock in served:
                assert sock.recv(65536)


def head(fields: int, size: int) -> bytes:
    """A request's head of so many fields and, up to the empty line, so many bytes."""
    lines = [GET[:-4], *(b"x: y" for _ in range(fields - 2))]
    spare = size - sum(len(line) + 2 for line in lines) - len(b"z: \r\n")
    return b"\r\n".join([*lines, b"z: " + b"z" * spare, b"", b""])


class TestHeads:
    @pytest.mark.parametrize(
        ("fields", "size", "answers"),
        [(100, 2000, True), (101, 2000, False), (9, 16_384, True), (9, 16_386, False),
         (60_000, 400_000, False), (20_000, 250_000, False)],
    )  # fmt: skip
    @pytest.mark.parametrize("before", in_full([GET, b""]), ids=["second", "first"])
    def test_a_large_one_is_refused(
        self, fields: int, size: int, answers: bool, before: bytes
    ) -> None:
        last = head(fields, size)
        assert last.count(b"\r\n") == fields + 2
        assert len(last) == size + 2
        found, count = b"", 2 if before else 1
        with (
            answering(60) as address,
            socket.create_connection(address, timeout=LIMIT_S) as sock,
            suppress(OSError),  # it may be refused and closed before all is sent
        ):
            sock.sendall(before + last)
            while found.count(b"HTTP/1.1 ") < count and (more := sock.recv(65536)):
                found += more
        assert found.count(b"HTTP/1.1 200") == count - (not answers)
        if size < 20_000:
            assert found.count(b"HTTP/1.1 400") == (not answers)

    @pytest.mark.parametrize("order", [1, -1])
    def test_one_with_two_lengths_is_refused(self, order: int) -> None:
        lengths = [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"][::order]
        for lines, status in ((lengths, 400), (lengths[:1], 200), (lengths[1:], 200)):
            with answering(60) as address, socket.create_connection(address) as sock:
                sock.sendall(GET[:-2] + b"".join(lines) + b"\r\n0\r\n\r\n")
                assert sock.recv(65536).startswith(b"HTTP/1.1 %d" % status)


def test_a_refused_body_is_not_read_on() -> None:
    with answering(60) as address, socket.create_connection(address, timeout=LIMIT_S) as sock:
        sock.sendall(GET[:-2] + b"Content-Length: 1000000000\r\n\r\n" + b"x" * 1000)
        assert whole(sock).endswith(b"done\r\n0\r\n\r\n")  # and the server's side is closed
        # What else comes is not taken for a request, and soon not taken at all.
        with pytest.raises(OSError):  # noqa: PT012
            while True:
                sock.sendall(GET * 100)
        assert b"done" in answer(address)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_who_asks_for_a_close_and_sends_on_gets_the_answer(version: bytes) -> None:
    """A close with bytes unread would be a reset, which takes the answer from the client."""
    head = GET.replace(b"1.1", version)[:-2] + b"Content-Length: 9000000\r\n"
    with answering(60, linger_s=60) as address:
        for _ in range(5):
            with socket.create_connection(address, timeout=LIMIT_S) as sock:
                sock.sendall(head + b"Connection: close\r\n\r\n")
                for _ in range(9):
                    sock.sendall(b"x" * 1_000_000)
                found = b""
                while more := sock.recv(65536):  # a reset would be an error
                    found += more
                assert b"done" in found


def test_who_asks_for_a_close_is_not_waited_for_long() -> None:
    with (
        answering(60, linger_s=0) as address,
        socket.create_connection(address, timeout=LIMIT_S) as sock,
    ):
        sock.sendall(GET[:-2] + b"Content-Length: 9\r\nConnection: close\r\n\r\n")
        whole(sock)
        with pytest.raises(OSError):  # noqa: PT012
            while True:
                sock.sendall(b"x")


@pytest.mark.full
def test_a_reader_too_slow_holds_nobody_and_is_cut(server: Server) -> None:
    """It reads nothing: its texts end before their end, and other clients are served meanwhile."""
    before = server.figure("edgedec_texts_total")
    body = json.dumps({**LONG, "n": 8, "logprobs": 20}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect((host, int(port)))
        sock.sendall(head + body)
        until(lambda: server.figure("edgedec_running_requests") == 1)
        served = 0
        while server.figure("edgedec_running_requests"):
            assert server.post("/v1/completions", BODY).status_code == 200
            served += 1
        assert served
        assert server.figure("edgedec_texts_total") - before - served < 8
        # What came before the cut is there, and then the reason.
        found = whole(sock).decode()
    events = [line[6:] for line in found.splitlines() if line.startswith("data: ")]
    assert len(events) > 10  # how many fit depends on buffers, and on how many share an event
    assert json.loads(events[-2])["error"]["code"] == "slow_reader"
    assert events[-1] == "[DONE]"


def events(server: Server, body: dict[str, Any]) -> list[str]:
    """The data of a stream's events."""
    import httpx

    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as answer:
        return [line[6:] for line in answer.iter_lines() if line]


@pytest.mark.parametrize("signals", in_full([2, 1]))
def test_a_signal_ends_everything_in_order(start: Callable[..., Any], signals: int) -> None:
    """Streams get an error and an end, who waits a 503, and nothing is written to the log."""
    grace = "600" if signals == 2 else "1"  # a second signal ends it at once
    with start("--grace", grace, "--parallel", "2") as server, ThreadPoolExecutor(4) as pool:
        body = {**LONG, "n": 8}
        streams = [pool.submit(events, server, body) for _ in range(2)]
        until(lambda: server.figure("edgedec_running_requests") == 2)
        queued = [pool.submit(server.post, "/v1/completions", BODY) for _ in range(2)]
        until(lambda: server.figure("edgedec_waiting_requests") == 2)
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as unfinished:
            unfinished.sendall(
                b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                b"Content-Type: application/json\r\n\r\n{"
            )
            assert server.get("/health").status_code == 200
            server.process.send_signal(signal.SIGINT)
            for one in queued:  # before the streams end
                assert one.result().status_code == 503
                assert one.result().headers["retry-after"]
            if signals == 2:
                assert not any(one.done() for one in streams)
                server.process.send_signal(signal.SIGINT)
            assert unfinished.recv(65536).startswith(b"HTTP/1.1 503")
        for one in streams:
            *texts, error, end = one.result()
            assert texts
            assert json.loads(error)["error"]["code"] == "shutting_down"
            assert end == "[DONE]"
        assert server.process.wait(60) == 0
