"""Two servers behind nginx and HAProxy, with 200 clients, while one of them is killed or drained."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
pytest.importorskip("openai", reason="openai not installed: install the extra dev")

from balancers import BALANCERS, balancing, file_of, program
from many_clients import CUT, WHOLE, Asked, Clients
from serving import Server, serving

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
def two_servers() -> Iterator[tuple[Server, Server]]:
    killed = (-signal.SIGKILL,)
    with (
        serving(Path("demo"), "--name", "one", *OPTIONS, ends=killed) as one,
        serving(Path("demo"), "--name", "two", *OPTIONS, ends=killed) as two,
    ):
        yield one, two


def texts_of(server: Server) -> dict[str, str]:
    """The right text of each prompt."""
    found = {}
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        found[prompt] = server.post("/v1/completions", body).json()["choices"][0]["text"]
    return found


def under_way(asked: Sequence[Asked]) -> bool:
    """Whether texts have been answered, and at least two more come from the first server."""
    done = sum(one.became == WHOLE for one in asked)
    return done >= 20 and sum(one.streaming and one.server == "one" for one in asked) >= 2


def ended(
    name: str, folder: Path, how: signal.Signals, change: Callable[[str], str] = str
) -> tuple[list[Asked], Server]:
    """Send a signal to the first server while texts come from it; return the requests.

    Args:
        name: of the balancer.
        folder: for its files.
        how: the signal.
        change: changes the balancer's file.

    """
    with two_servers() as (one, two):
        texts = texts_of(two)
        assert texts == texts_of(one)
        addresses = [server.url.removeprefix("http://") for server in (one, two)]

        def act(asked: Sequence[Asked]) -> bool:
            if not under_way(asked):
                return False
            one.process.send_signal(how)
            return True

        with balancing(name, addresses, folder, change(file_of(name))) as url:
            clients = Clients(url, texts, CLIENTS, EACH, TOKENS)
            asyncio.run(clients.run(act))
        assert one.process.wait(60) == (0 if how == signal.SIGTERM else -how)
    return clients.asked, one


def lost(asked: Sequence[Asked]) -> list[Asked]:
    """The requests that were not answered, without those that were coming from the first server."""
    return [
        one
        for one in asked
        if one.became != WHOLE and not (one.became == CUT and one.server == "one")
    ]


@pytest.fixture(params=BALANCERS)
def balancer(request: pytest.FixtureRequest) -> str:
    program(request.param)
    return str(request.param)


def test_a_killed_server_loses_no_request_but_what_was_coming_from_it(
    balancer: str, tmp_path: Path
) -> None:
    asked, _ = ended(balancer, tmp_path, signal.SIGKILL)
    print(Counter((one.became, one.how) for one in asked))
    assert len(asked) == CLIENTS * EACH
    assert lost(asked) == []
    assert any(one.became == CUT for one in asked)  # the control of the next test
    assert {one.server for one in asked} == {"one", "two"}


def test_a_drained_server_loses_nothing(balancer: str, tmp_path: Path) -> None:
    asked, _ = ended(balancer, tmp_path, signal.SIGTERM)
    assert Counter(one.became for one in asked) == {WHOLE: CLIENTS * EACH}
    assert {one.server for one in asked} == {"one", "two"}


def test_without_its_care_a_balancer_loses_requests(balancer: str, tmp_path: Path) -> None:
    """The control of the first test."""
    pattern, instead = CARE[balancer]

    def careless(text: str) -> str:
        changed, count = re.subn(pattern, instead, text)
        assert count == (1 if balancer == "nginx" else 4)
        return changed

    asked, _ = ended(balancer, tmp_path, signal.SIGKILL, careless)
    print(Counter((one.became, one.how) for one in asked))
    assert lost(asked)
