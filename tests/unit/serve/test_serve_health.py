"""What a balancer and a supervisor ask: `/health`, `/livez`, and what SIGTERM does to requests."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from kinds import in_full
from served_here import ASKED, models_here, run, serving_here
from serving import Server
from waiting import until

from edgedec import Pipeline
from edgedec.errors import RuntimeUnavailable
from edgedec.serve.lane import Compiler
from edgedec.serve.models import Models, Visit
from edgedec.serve.run import bound, serve
from edgedec.serve.settings import Settings
from edgedec.serve.shared import Bodies
from edgedec.serve.turns import Ticket, Turns

BODY = {"prompt": "x", "max_tokens": 4}
# Special tokens, any of which may end a text, are never drawn.
_ENDS = {str(token): -100 for token in (0, 1, 2, 3, 4, 340, 341)}
LONG = {**BODY, "max_tokens": 1900, "temperature": 0, "logit_bias": _ENDS}


async def told(client: httpx.AsyncClient, path: str = "/health") -> tuple[int, str, bool]:
    """Status, reason, and whether the answer says when to ask again."""
    answer = await client.get(path)
    return answer.status_code, answer.json()["status"], "retry-after" in answer.headers


async def test_a_full_queue_is_unhealthy_and_alive(
    pipeline: Pipeline, gate: threading.Event
) -> None:
    async with serving_here(pipeline, parallel=1, queue=1) as (served, client):

        def ask() -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(client.post("/v1/completions", json={**ASKED, **BODY}))

        async def asked(count: int) -> None:
            while len(served.turns.running) + len(served.turns.waiting) < count:
                await asyncio.sleep(0)

        first = ask()
        await asked(1)
        assert await told(client) == (200, "ok", False)  # the control: one more may wait
        second = ask()
        await asked(2)
        assert await told(client) == (503, "queue_full", True)
        assert await told(client, "/livez") == (200, "ok", False)
        gate.set()
        assert [(await one).status_code for one in (first, second)] == [200, 200]
        assert await told(client) == (200, "ok", False)


def test_a_request_whose_time_is_over_in_the_queue_gets_504(
    pipeline: Pipeline, gate: threading.Event
) -> None:
    async def test(late: bool) -> None:
        gate.clear()
        async with serving_here(pipeline, parallel=1) as (served, client):
            sent = {**ASKED, **BODY}
            asked = [
                asyncio.create_task(client.post("/v1/completions", json=sent)) for _ in range(2)
            ]
            while not (served.turns.running and served.turns.waiting):
                await asyncio.sleep(0)
            if late:
                served.turns.waiting[0].deadline = 0.0
            gate.set()
            assert [(await one).status_code for one in asked] == [200, 504 if late else 200]

    run(test(late=True))
    run(test(late=False))  # the control


@pytest.mark.parametrize("held", ["read", "compiled"])
def test_what_arrived_before_the_server_drains_is_decoded(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """The server drains while a request is read, or while its grammar would be compiled."""

    async def test(arrived: int) -> None:
        reached, go_on = asyncio.Event(), asyncio.Event()
        if held == "read":
            where, name = Bodies, "receive"
        else:
            where, name = Compiler, "prepare"
        method = getattr(where, name)

        async def stopped(self: Any, *given: Any) -> Any:
            reached.set()
            await go_on.wait()
            return await method(self, *given)

        models = Models.alone(pipeline, Settings("tiny"))
        async with models_here(models) as client:
            with monkeypatch.context() as patch:
                patch.setattr(where, name, stopped)
                asked = asyncio.create_task(client.post("/v1/completions", json={**ASKED, **BODY}))
                await reached.wait()
            assert models.idle == (arrived == 503)
            models.drain()
            late = await client.post("/v1/completions", json={**ASKED, **BODY})
            assert late.status_code == 503
            go_on.set()
            assert (await asked).status_code == arrived
            while not models.idle:
                await asyncio.sleep(0)

    @contextmanager
    def uncounted(self: Models) -> Iterator[Visit]:
        yield Visit(self, came=False)

    run(test(200))
    # The control: what is not submitted yet is not counted, and refused when it is.
    submit, draining = Turns.submit, Models.drain
    monkeypatch.setattr(Models, "visit", uncounted)
    monkeypatch.setattr(Models, "drain", lambda self: (draining(self), refuse()))

    def refuse() -> None:
        monkeypatch.setattr(Turns, "submit", lambda self, one: (self.end(), submit(self, one)))

    run(test(503))


async def test_a_reloading_model_is_unhealthy(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at while the configuration that replaces a failed one is being opened."""
    seen: list[tuple[int, str, bool]] = []
    async with serving_here(pipeline) as (_, client):
        opening, opened = threading.Event(), threading.Event()

        def reopen(self: object, parts: Any, error: Exception) -> Any:
            opening.set()
            assert opened.wait(60)
            return parts

        engine = pipeline.engine
        step, failed = type(engine).run, []

        def failing(self: Any, *given: Any) -> Any:
            if not failed:
                failed.append(True)
                raise RuntimeUnavailable("the device is gone")
            return step(self, *given)

        monkeypatch.setattr(type(engine), "run", failing)
        monkeypatch.setattr(type(pipeline._ways), "reopen", reopen)
        asked = asyncio.create_task(client.post("/v1/completions", json={**ASKED, **BODY}))
        await asyncio.to_thread(opening.wait, 60)
        seen.append(await told(client))
        assert await told(client, "/livez") == (200, "ok", False)
        opened.set()
        assert (await asked).status_code == 200
        seen.append(await told(client))
    assert seen == [(503, "reloading", True), (200, "ok", False)]


def test_a_server_whose_decoding_has_died_is_not_alive(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Turns) -> bool:
        raise ZeroDivisionError

    async def test(alive: bool) -> None:
        async with serving_here(pipeline) as (served, client):
            if not alive:
                served.turns.submit(Ticket([], timeout_s=60))
                while not served.turns.broken:
                    await asyncio.sleep(0)
            expected = (200, "ok", False) if alive else (503, "stopped", False)
            assert await told(client, "/livez") == expected
            assert await told(client) == expected

    run(test(alive=True))
    monkeypatch.setattr(Turns, "_admit", broken)
    run(test(alive=False))


def _health(server: Server) -> tuple[int, str]:
    answer = server.get("/health")
    return answer.status_code, answer.json()["status"]


@pytest.mark.parametrize(("sent", "queued"), in_full([(signal.SIGTERM, 200), (signal.SIGINT, 503)]))
def test_sigterm_drains_a_process(
    start: Callable[..., Any], sent: signal.Signals, queued: int
) -> None:
    """At SIGINT, the control, the request that waits is refused."""
    with (
        start("--grace", "600", "--parallel", "1") as server,
        ThreadPoolExecutor(2) as pool,
    ):
        body = {**LONG, "n": 3}
        running = pool.submit(server.post, "/v1/completions", body)
        until(lambda: server.figure("edgedec_running_requests") == 1)
        waiting = pool.submit(server.post, "/v1/completions", BODY)
        until(lambda: server.figure("edgedec_waiting_requests") == 1)
        assert _health(server) == (200, "ok")
        server.process.send_signal(sent)
        if sent == signal.SIGTERM:
            until(lambda: _health(server) == (503, "shutting_down"))
            late = server.post("/v1/completions", BODY)
            assert (late.status_code, late.headers["retry-after"]) == (503, "5")
            assert json.loads(late.text)["error"]["code"] == "shutting_down"
            assert server.get("/livez").status_code == 200
        assert running.result().status_code == 200
        assert len(running.result().json()["choices"]) == 3
        assert waiting.result().status_code == queued
        assert server.process.wait(60) == 0


def test_a_body_that_is_on_its_way_at_sigterm_is_answered(start: Callable[..., Any]) -> None:
    """The server asks for the body (100 Continue), is told to end, and gets the body then."""
    body = json.dumps(BODY).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with start("--grace", "600") as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(head.encode())
            assert client.recv(65536).startswith(b"HTTP/1.1 100")
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _health(server) == (503, "shutting_down"))
            assert server.post("/v1/completions", BODY).status_code == 503  # the control
            client.sendall(body)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        assert server.process.wait(60) == 0


def test_draining_has_a_limit(start: Callable[..., Any]) -> None:
    """What runs or waits when four fifths of --grace are over gets a clean error."""
    with (
        start("--grace", "1", "--parallel", "1") as server,
        ThreadPoolExecutor(2) as pool,
    ):
        asked = [pool.submit(server.post, "/v1/completions", {**LONG, "n": 8}) for _ in range(2)]
        until(lambda: server.figure("edgedec_waiting_requests") == 1)
        server.process.send_signal(signal.SIGTERM)
        for one in asked:
            assert one.result().status_code == 503
            assert one.result().json()["error"]["code"] == "shutting_down"
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_right_after_the_address_ends_the_server(
    pipeline: Pipeline, number: signal.Signals
) -> None:
    """It comes before the server runs, which takes signals itself then."""
    waited = threading.Event()

    def give_up() -> None:
        waited.set()
        signal.raise_signal(signal.SIGTERM)

    guard = threading.Timer(30, give_up)
    with bound("127.0.0.1", 0) as sock:

        def announce() -> None:
            sock.listen()
            guard.start()
            signal.raise_signal(number)

        try:
            serve(pipeline, Settings("tiny"), sock, announce=announce)
        finally:
            guard.cancel()
    assert guard.ident is not None
    assert not waited.is_set()
