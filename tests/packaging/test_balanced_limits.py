"""What one request can do to the servers behind nginx and HAProxy."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
pytest.importorskip("openai", reason="openai not installed: install the extra dev")

import httpx
from balancers import BALANCERS, balancing, file_of, program
from serving import Server, serving

SMALL = {"prompt": "x", "max_tokens": 1}
# Reading it takes 48 MB: 12 bytes for each of its own.
LARGE = {"prompt": "x" * 4_000_000, "max_tokens": 1}
_SPARE = 36_000_000


@pytest.fixture(params=BALANCERS)
def balancer(request: pytest.FixtureRequest) -> str:
    program(request.param)
    return str(request.param)


def _session(number: int) -> dict[str, str]:
    return {"X-Session-Id": f"conversation {number}"}


@contextmanager
def servers_short_of_memory() -> Iterator[list[Server]]:
    """Two servers that hold short requests, and no long one."""
    with serving(Path("demo"), "--threads", "1") as server:
        held = server.get("/edgedec/status").json()["memory_bytes"]
    options = ("--threads", "1", "--plan", "none", "--memory", f"{(held + _SPARE) / 1e6:.0f}MB")
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(Path("demo"), "--name", name, *options))
            for name in ("one", "two")
        ]


# Ways to leave a server out after a refusal.
LEAVES_OUT = {
    "nginx": ("max_fails=0", "max_fails=1 fail_timeout=60s"),
    "haproxy": ("rise 1 ", "rise 100 observe layer7 error-limit 1 on-error mark-down "),
}


@pytest.mark.slow
def test_requests_that_memory_does_not_hold_leave_the_others_alone(
    balancer: str, tmp_path: Path
) -> None:
    with servers_short_of_memory() as servers:

        def answers(file: str, folder: Path) -> list[tuple[int, str]]:
            """Of short requests, once long ones of other conversations were refused."""
            folder.mkdir()
            addresses = [server.url.removeprefix("http://") for server in servers]
            with (
                balancing(balancer, addresses, folder, file) as url,
                httpx.Client(base_url=url, timeout=60) as http,
            ):
                for number in range(8):
                    found = http.post("/v1/completions", json=LARGE, headers=_session(number))
                    assert found.status_code == 503
                small = [
                    http.post("/v1/completions", json=SMALL, headers=_session(number))
                    for number in range(8)
                ]
            return [
                (one.status_code, one.json().get("model") or one.json()["error"]["code"])
                for one in small
            ]

        for server in servers:
            refused = server.post("/v1/completions", LARGE)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "insufficient_memory"
        file = file_of(balancer)
        assert set(answers(file, tmp_path / "shipped")) == {(200, "one"), (200, "two")}
        changed = file.replace(*LEAVES_OUT[balancer])
        assert set(answers(changed, tmp_path / "changed")) == {(503, "no_server")}


class _Alike(BaseHTTPRequestHandler):
    """Is healthy, and gives texts one status; or ends, as a process does that a request kills."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1  # type: ignore[attr-defined]
        self.close_connection = True
        if self.server.says is not None:  # type: ignore[attr-defined]
            self._say(self.server.says)  # type: ignore[attr-defined]

    def _say(self, status: int) -> None:
        self.send_response(status)
        if self.close_connection:  # or a balancer would send another request on it
            self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def servers_alike(count: int, says: int | None) -> Iterator[list[ThreadingHTTPServer]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Alike) for _ in range(count)]
    for server in servers:
        server.asked, server.says = 0, says  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield servers
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _with_more(file: str, addresses: Sequence[str]) -> str:
    """Return a balancer's file with more servers than its two."""
    line = re.search(r"(?m)^ +server .*10\.0\.0\.12:8080.*\n", file)
    assert line is not None
    more = [
        line[0].replace("10.0.0.12:8080", one).replace(" two ", f" more{number} ")
        for number, one in enumerate(addresses)
    ]
    return file.replace(line[0], line[0] + "".join(more))


UNBOUNDED = {
    "nginx": (r"proxy_next_upstream_tries .*", ""),
    "haproxy": (r"(?m)^( +retries) .*$", r"\1 3"),
}


@pytest.mark.parametrize("bounded", [True, False])
def test_a_request_that_ends_servers_meets_two_of_four(
    balancer: str, tmp_path: Path, bounded: bool
) -> None:
    """The control: without the bound it meets more."""
    file, changes = file_of(balancer), 1
    if not bounded:
        file, changes = re.subn(*UNBOUNDED[balancer], file)
    assert changes == 1
    with servers_alike(4, None) as servers:
        addresses = [f"127.0.0.1:{server.server_port}" for server in servers]
        file = _with_more(file, addresses[2:])
        with balancing(balancer, addresses[:2], tmp_path, file) as url:
            found = httpx.post(f"{url}/v1/completions", json=SMALL, headers=_session(1), timeout=60)
        assert found.status_code in (502, 503)
        assert found.headers["retry-after"] == "5"
        asked = sorted(server.asked for server in servers)  # type: ignore[attr-defined]
        assert asked == [0, 0, 1, 1] if bounded else sum(asked) > 2


@pytest.mark.parametrize(("says", "asked"), [(504, 1), (503, 2)])
def test_a_request_that_has_waited_too_long_does_not_wait_again(
    balancer: str, tmp_path: Path, says: int, asked: int
) -> None:
    """A server says 504 then, which is not sent again; 503, the control, is."""
    with servers_alike(2, says) as servers:
        addresses = [f"127.0.0.1:{server.server_port}" for server in servers]
        with balancing(balancer, addresses, tmp_path) as url:
            found = httpx.post(f"{url}/v1/completions", json=SMALL, headers=_session(1), timeout=60)
        assert found.status_code == says
        assert sum(server.asked for server in servers) == asked  # type: ignore[attr-defined]


@contextmanager
def silent_address() -> Iterator[str]:
    """An address that answers no attempt to connect, as that of a machine without power."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:  # until its queue, from which nobody takes, is full
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.3)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                break
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.slow
def test_what_belongs_to_a_silent_machine_is_answered_by_another(tmp_path: Path) -> None:
    """With nginx, which has no health checks; the control sends nothing again."""
    program("nginx")
    file = file_of("nginx")
    careless = re.sub("proxy_next_upstream .*;", "proxy_next_upstream off;", file)
    for text, seen in ((file, {200}), (careless, {200, 503})):
        folder = tmp_path / str(len(seen))
        folder.mkdir()
        with servers_alike(1, 200) as (server,), silent_address() as silent:
            addresses = [silent, f"127.0.0.1:{server.server_port}"]
            with (
                balancing("nginx", addresses, folder, text) as url,
                httpx.Client(timeout=60) as http,
            ):
                found = [
                    http.post(f"{url}/v1/completions", json=SMALL, headers=_session(number))
                    for number in range(8)
                ]
        assert {one.status_code for one in found} == seen
