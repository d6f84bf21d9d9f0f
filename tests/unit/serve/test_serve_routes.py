"""What holds on every route: the key, the names, the limits, the queue; and the access log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kinds import in_full
from served_here import run, serving_here
from serving import Server
from starlette.routing import Route

from edgedec import Pipeline
from edgedec.serve import keyless
from edgedec.serve.app import Routes
from edgedec.serve.models import Models
from edgedec.serve.settings import Limits, Settings

KEY = "a-key-of-this-test-0123456789"
TALK = [{"role": "user", "content": "Hello"}]
# A request for a short text of each route that gives one.
TEXTS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x", "max_tokens": 4},
    "/v1/chat/completions": {"messages": TALK, "max_tokens": 4},
    "/v1/responses": {"input": "x", "max_output_tokens": 4},
    "/v1/messages": {"messages": TALK, "max_tokens": 4},
    "/completion": {"prompt": "x", "n_predict": 4},
    "/api/chat": {"messages": TALK, "options": {"num_predict": 4}, "stream": False},
    "/api/generate": {"prompt": "x", "options": {"num_predict": 4}, "stream": False},
}
OPEN = {"/", "/health", "/livez", *(one for one in keyless.PATHS if one.startswith("/page/"))}


def routes_of(pipeline: Pipeline) -> list[Route]:
    models = Models.alone(pipeline, Settings("tiny"))
    try:
        return [one for one in Routes(models).app().routes if isinstance(one, Route)]
    finally:
        models.close()


def test_each_route_is_known_here(pipeline: Pipeline) -> None:
    """So that a new one is looked at: TEXTS above, and the page that names them all."""
    paths = {one.path for one in routes_of(pipeline)}
    assert paths >= TEXTS.keys()
    assert paths - TEXTS.keys() - OPEN == {
        "/v1/models", "/v1/models/{name:path}", "/v1/messages/count_tokens", "/tokenize",
        "/detokenize", "/apply-template",
        "/props", "/metrics", "/edgedec/status",
        "/api/tags", "/api/ps", "/api/version", "/api/show",
        # Refused with what there is instead.
        "/v1/embeddings", "/v1/responses/{rest:path}", "/v1/messages/{rest:path}",
        "/api/embed", "/api/embeddings", "/api/{rest:path}",
    }  # fmt: skip


async def test_each_demands_the_key_and_a_known_name_and_page(pipeline: Pipeline) -> None:
    routes = routes_of(pipeline)
    async with serving_here(pipeline, keys=(KEY,)) as (_, client):
        for route in routes:
            method = min(set(route.methods or ()) - {"HEAD"})
            path = re.sub(r"{.*}", "tiny", route.path)
            key = {"Authorization": f"Bearer {KEY}"}

            async def status(
                headers: dict[str, str], path: str = path, method: str = method
            ) -> int:
                return (await client.request(method, path, headers=headers)).status_code

            assert await status({}) == (200 if path in OPEN else 401), path
            assert await status({**key, "Host": "evil.example"}) == 421
            assert await status({**key, "Origin": "http://evil.example"}) == 403
            assert await status(key) in (200, 404, 415)  # the control


@pytest.mark.parametrize("path", TEXTS)
async def test_bodies_are_limited(pipeline: Pipeline, path: str) -> None:
    async with serving_here(pipeline, limits=Limits(body_bytes=2000)) as (_, client):
        for size, status in ((100, 200), (3000, 413)):
            answer = await client.post(path, json={**TEXTS[path], "user": "x" * size})
            assert answer.status_code == status
        assert "at most 2000 bytes" in answer.text
        deep = b'{"messages": ' + b"[" * 1900
        kind = {"Content-Type": "application/json"}
        assert (await client.post(path, content=deep, headers=kind)).status_code == 400
        # A page can send these types without asking the browser's leave.
        for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            headers = {"Content-Type": form, "Origin": "http://localhost"}
            assert (await client.post(path, content=b"{}", headers=headers)).status_code == 415


@pytest.mark.parametrize("path", TEXTS)
async def test_each_waits_in_the_queue(
    pipeline: Pipeline, gate: threading.Event, path: str
) -> None:
    """One request runs, one waits, and the third is told to come again."""
    async with serving_here(pipeline, parallel=1, queue=1) as (served, client):
        two = [asyncio.create_task(client.post(path, json=TEXTS[path])) for _ in range(2)]
        while not (served.turns.running and served.turns.waiting):
            await asyncio.sleep(0)
        third = await client.post(path, json=TEXTS[path])
        assert third.status_code == 429
        assert 1 <= int(third.headers["retry-after"]) <= 60
        gate.set()
        assert [(await one).status_code for one in two] == [200, 200]


@pytest.mark.parametrize("path", TEXTS)
def test_another_name_is_answered_or_refused_alike(pipeline: Pipeline, path: str) -> None:
    async def test(strict: bool, statuses: list[int]) -> None:
        async with serving_here(pipeline, strict=strict) as (_, client):
            asked = [{**TEXTS[path], "model": name} for name in ("tiny", "other", None)]
            answers = [await client.post(path, json=body) for body in asked]
            assert [one.status_code for one in answers] == statuses
            named = [one.headers.get("x-edgedec-model") for one in answers]
            assert named == [None, *([None] if strict else ["tiny"]) * 2]

    run(test(False, [200, 200, 200]))
    run(test(True, [200, 404, 404]))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The lines of the access log so far."""
    with caplog.at_level(logging.INFO, "edgedec.access"):
        yield lambda: [one.getMessage() for one in caplog.records if one.name == "edgedec.access"]


async def test_the_access_log(pipeline: Pipeline, lines: Callable[[], list[str]]) -> None:
    async with serving_here(pipeline) as (_, client):
        await client.get("/health?token=secret")
        await client.get("/no%0asuch%1b[31mroute")
        await client.get("/health", headers={"Host": "evil.example"})
        body = {"messages": TALK, "max_tokens": 4, "stream": True}
        await client.post("/v1/chat/completions", json=body)
        logging.getLogger("edgedec.access").setLevel(logging.WARNING)  # the control
        await client.get("/health")
    when, who = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", r"127\.0\.0\.1"
    wanted = [
        r"GET /health 200", r"GET /no\?such\?\[31mroute 404", r"GET /health 421",
        r"POST /v1/chat/completions 200",
    ]  # fmt: skip
    assert len(lines()) == len(wanted)
    for line, what in zip(lines(), wanted, strict=True):
        assert re.fullmatch(rf"{when} {who} {what} \d+\.\d{{3}} s", line), line


@pytest.mark.full
def test_it_is_written_on_demand(start: Callable[..., Any]) -> None:
    server: Server
    with start("-v") as server:
        assert server.said.endswith(f"a page at {server.url}; Ctrl-C stops\n")
        assert server.process.stderr is not None
        server.get("/health")
        line = ""
        while "/health" not in line:  # after the runtime's own
            line = server.process.stderr.readline()
            assert line
        assert " GET /health 200 " in line
    with start() as server:
        server.get("/health")
        server.process.terminate()
        assert server.process.stderr is not None
        assert "/health" not in server.process.stderr.read()


FIELDS = (
    "model", "prompt", "messages", "input", "suffix", "echo", "stream", "stream_options", "stop",
    "options", "format", "text", "tools", "tool_choice", "response_format", "logit_bias", "edgedec",
    "temperature", "seed", "n", "logprobs", "top_logprobs", "instructions", "system", "raw",
    "context", "images", "template", "keep_alive", "previous_response_id", "include", "truncation",
    "functions", "modalities", "user", "unknown",
)  # fmt: skip
ODD: list[Any] = [
    True, 0, -1, 1e308, 1 << 70, "", "x", "\ud800", [], [None], [[]], [1 << 70], {}, {"a": 1},
    {"type": "json_schema", "format": 3, "num_predict": "x", "stop": 3}, [{"role": "user"}],
    [{"role": "tool", "content": [{}], "tool_calls": [{}]}], [{"type": "message", "role": {}}],
]  # fmt: skip


@pytest.mark.parametrize("path", in_full(TEXTS, 2))
async def test_whatever_a_field_holds_the_server_does_not_fail(
    pipeline: Pipeline, path: str
) -> None:
    found = set()
    limits = Limits(text_s=0.05)  # a text of any length ends soon
    async with serving_here(pipeline, limits=limits) as (_, client):
        for name in FIELDS:
            for value in ODD:
                content = json.dumps({**TEXTS[path], name: value})
                kind = {"Content-Type": "application/json"}
                answer = await client.post(path, content=content, headers=kind)
                found.add(answer.status_code)
                assert answer.status_code != 500, (name, value, answer.text)
    assert found >= {200, 400}
