"""Two servers behind nginx and HAProxy, with 200 clients, while one is killed or drained."""

from __future__ import annotations

import asyncio
import json
import re
import select
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
pytest.importorskip("openai", reason="openai not installed: install the extra dev")

import httpx
from balancers import BALANCERS, balancing, file_of, program
from held_streams import holding
from many_clients import CUT, REFUSED, WHOLE, Asked, Clients
from serving import Server, serving
from waiting import LIMIT_S, until

from edgedec import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CLIENTS, EACH, TOKENS = 200, 1, 40
PROMPTS = tuple(
    f"def {verb}_{noun}(" for verb in ("read", "write", "sort", "find") for noun in ("a", "b", "c")
)
# The queue of one server holds all clients; passes are padded, so that texts are the same on both.
OPTIONS = ("--threads", "1", "--queue", "256", "--grace", "120", "--batch-invariant")
# What the files have against lost requests.
CARE = {
    "nginx": (r"proxy_next_upstream .*;", "proxy_next_upstream off;"),
    "haproxy": (r"(?m)^    (?:default-server check .*|option redispatch .*|retr.*)$", ""),
}


@contextmanager
def two_servers(*options: str) -> Iterator[tuple[Server, Server]]:
    given, ends = (*OPTIONS, *options), (-signal.SIGKILL,)
    with (
        serving(Path("demo"), "--name", "one", *given, ends=ends) as one,
        serving(Path("demo"), "--name", "two", *given, ends=ends) as two,
    ):
        for server, name in ((one, "one"), (two, "two")):  # which are there once they answer
            assert server.get("/v1/models").json()["data"][0]["id"] == name
        yield one, two


def addresses(servers: Sequence[Server]) -> list[str]:
    return [server.url.removeprefix("http://") for server in servers]


def texts_of(server: Server) -> dict[str, str]:
    """The right text of each prompt."""
    found = {}
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        found[prompt] = server.post("/v1/completions", body).json()["choices"][0]["text"]
    return found


def requests(url: str, texts: dict[str, str], server: Server, how: signal.Signals) -> list[Asked]:
    """Send a signal to a server while texts come from it; return what became of all requests.

    Args:
        url: of the balancer.
        texts: the right ones.
        server: the one to end; ``how`` is the signal.

    """

    name = server.said.split()[0]

    def act(asked: Sequence[Asked]) -> bool:
        done = sum(one.became == WHOLE for one in asked)
        coming = sum(one.streaming and one.server == name for one in asked)
        # Clients read in bursts: two that come at once may never be seen, so one is enough at last.
        if done < 20 or coming < (2 if done < CLIENTS // 2 else 1):
            return False
        server.process.send_signal(how)
        return True

    clients = Clients(url, texts, CLIENTS, EACH, TOKENS)
    asyncio.run(clients.run(act))
    print(Counter((one.became, one.how) for one in clients.asked))
    assert server.process.wait(60) == (0 if how == signal.SIGTERM else -how)
    assert len(clients.asked) == CLIENTS * EACH
    return clients.asked


def killed(name: str, folder: Path, file: str) -> list[Asked]:
    """Kill one of two servers behind a balancer with this file; return the requests."""
    with two_servers() as (one, two):
        texts = texts_of(two)
        assert texts == texts_of(one)
        with balancing(name, addresses((one, two)), folder, file) as url:
            return requests(url, texts, one, signal.SIGKILL)


def lost(asked: Sequence[Asked]) -> list[Asked]:
    """The requests that were not answered, without those that were coming from the first server.

    One whose stream had begun, but for its first token, does not say from which.
    """
    return [
        one
        for one in asked
        if one.became != WHOLE and not (one.became == CUT and one.server != "two")
    ]


@pytest.fixture(params=BALANCERS)
def balancer(request: pytest.FixtureRequest) -> str:
    program(request.param)
    return str(request.param)


def test_a_killed_server_loses_no_request_but_what_was_coming_from_it(
    balancer: str, tmp_path: Path
) -> None:
    # A server may have sent what a client has yet to read: then nothing is cut when it is killed.
    for attempt in range(5):
        (tmp_path / str(attempt)).mkdir()
        asked = killed(balancer, tmp_path / str(attempt), file_of(balancer))
        assert lost(asked) == []
        assert {one.server for one in asked} == {"one", "two"}
        if any(one.became == CUT for one in asked):  # the control of the next test
            break
    else:
        pytest.fail("no text was cut")


def test_a_rolling_restart_loses_nothing(balancer: str, tmp_path: Path) -> None:
    """One server drains and starts again, then the other drains: all under the clients' load."""
    with (
        two_servers() as (one, two),
        balancing(balancer, addresses((one, two)), tmp_path) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        texts = texts_of(two)
        asked = requests(url, texts, one, signal.SIGTERM)
        assert Counter(one.became for one in asked) == {WHOLE: CLIENTS * EACH}
        assert {one.server for one in asked} == {"one", "two"}

        def names() -> set[str]:
            body = {"prompt": "x", "max_tokens": 1}
            sessions = [{"X-Session-Id": f"conversation {number}"} for number in range(32)]
            sent = [http.post("/v1/completions", json=body, headers=one) for one in sessions]
            return {one.json()["model"] for one in sent}

        port = one.url.rpartition(":")[2]
        with serving(Path("demo"), "--name", "three", "--port", port, *OPTIONS):
            until(lambda: names() == {"two", "three"})
            asked = requests(url, texts, two, signal.SIGTERM)
            assert Counter(one.became for one in asked) == {WHOLE: CLIENTS * EACH}
            assert {one.server for one in asked} == {"two", "three"}


def test_without_its_care_a_balancer_loses_requests(balancer: str, tmp_path: Path) -> None:
    """The control of the first test."""
    careless, count = re.subn(*CARE[balancer], file_of(balancer))
    assert count == (1 if balancer == "nginx" else 4)
    assert lost(killed(balancer, tmp_path, careless))


def test_full_servers_say_when_to_come_again(balancer: str, tmp_path: Path) -> None:
    """Two servers have room for a tenth of the clients; the others are told so."""
    with two_servers("--parallel", "2", "--queue", "8") as servers:
        texts = texts_of(servers[1])
        file = file_of(balancer).replace("maxconn 64", "maxconn 200")  # none waits in HAProxy
        with balancing(balancer, addresses(servers), tmp_path, file) as url:
            clients = Clients(url, texts, CLIENTS, EACH, TOKENS)
            became = asyncio.run(clients.run(lambda asked: True))
        print(Counter((one.became, one.how) for one in clients.asked))
        assert became.keys() == {WHOLE, REFUSED}
        assert became[WHOLE] >= 20


# What makes requests of a session go to one server, and what does not.
STICKY = {
    "nginx": ("hash $edgedec_session consistent;", ""),
    "haproxy": ("balance hash var(txn.session)", "balance roundrobin"),
}


@pytest.mark.parametrize("sticky", [True, False])
def test_a_conversation_stays_on_a_server_that_has_its_beginning(
    balancer: str, tmp_path: Path, sticky: bool
) -> None:
    file = file_of(balancer) if sticky else file_of(balancer).replace(*STICKY[balancer])
    with (
        two_servers() as servers,
        balancing(balancer, addresses(servers), tmp_path, file) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):

        def talk(number: int) -> tuple[set[str], int]:
            """The servers of three turns, and the tokens of the last that were cached."""
            prompt, names = f"def number_{number}(" + "a, b, c, " * 30, set()
            for _ in range(3):
                body = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
                session = {"X-Session-Id": f"session {number}"}
                found = http.post("/v1/completions", json=body, headers=session).json()
                names.add(found["model"])
                prompt += found["choices"][0]["text"]
            return names, found["usage"]["prompt_tokens_details"]["cached_tokens"]

        talks = [talk(number) for number in range(12)]
        stayed = [names for names, _ in talks if len(names) == 1]
        if sticky:
            assert len(stayed) == len(talks)
            assert set.union(*stayed) == {"one", "two"}
            assert all(cached > 50 for _, cached in talks)
        else:
            assert len(stayed) < len(talks)
        # Without the header the address counts, which is one here.
        body = {"prompt": "x", "max_tokens": 1}
        by_address = {http.post("/v1/completions", json=body).json()["model"] for _ in range(8)}
        assert len(by_address) == (1 if sticky else 2)


def test_each_token_comes_at_once(balancer: str, tmp_path: Path) -> None:
    """The first ones come while the server holds the others; the control gathers them all."""
    gathers = (
        "proxy_ignore_headers X-Accel-Buffering; proxy_buffer_size 1m; proxy_buffers 8 1m;"
        "proxy_busy_buffers_size 2m;"
    )
    # Both are nginx's defaults.
    careless = file_of(balancer).replace("proxy_buffering off;", gathers)
    careless = careless.replace("proxy_http_version 1.1;", "")
    asked = json.dumps({"prompt": "x", "max_tokens": 900, "temperature": 0, "stream": True})
    with Pipeline.open("demo", plan="none", threads=1) as pipeline:
        for file in (file_of(balancer), careless):
            if file == careless and balancer == "haproxy":
                continue  # has no such setting
            folder = tmp_path / str(file == careless)
            folder.mkdir()
            with (
                holding(pipeline) as (held, address),
                balancing(balancer, (address, address), folder, file) as url,
                socket.create_connection(_parts(url), timeout=LIMIT_S) as client,
            ):
                client.sendall(_post(url, asked))
                came = b""
                if file == careless:
                    assert held.holding.wait(LIMIT_S)
                    # nginx has one thread: once it has answered these, it has read the first piece.
                    assert all(httpx.get(f"{url}/livez").is_success for _ in range(4))
                    assert select.select([client], [], [], 0)[0] == []
                else:
                    while b"data: " not in came:
                        came += _received(client)
                assert held.holding.wait(LIMIT_S)
                held.go_on.set()
                while b"data: [DONE]" not in came:
                    came += _received(client)


def _parts(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def _post(url: str, body: str) -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def _received(client: socket.socket) -> bytes:
    """What comes next; the end of the connection is an error."""
    found = client.recv(1 << 16)
    assert found, "the connection has ended"
    return found
