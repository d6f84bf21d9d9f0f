"""Schemas made to hold a server up: each is answered, and meanwhile other texts go on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kinds import in_full

pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")

import httpx
from hostile_schemas import REFUSED, TAKEN
from served_here import serving_here
from serving import Server

from edgedec import GenerateOptions, Pipeline
from edgedec.errors import InputError
from edgedec.grammar.grammars import Grammars
from edgedec.serve.lane import Compiler

SHORT: dict[str, Any] = {"model": "tiny", "prompt": "x", "max_tokens": 4, "temperature": 0}


def asked(server: Server, schema: str, **more: Any) -> httpx.Response:
    """Ask for a text of a schema, given as JSON."""
    body = json.dumps(
        {
            "model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 8,
            "temperature": 0, **more,
            "response_format": {"type": "json_schema", "json_schema": {"schema": "SCHEMA"}},
        }
    )  # fmt: skip
    headers = {"Content-Type": "application/json"}
    content = body.replace('"SCHEMA"', schema)
    return httpx.post(
        f"{server.url}/v1/chat/completions", content=content, headers=headers, timeout=60
    )


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "endless"])
@pytest.mark.parametrize("stream", in_full([True, False]))
def test_it_is_refused_in_the_apis_shape(server: Server, name: str, stream: bool) -> None:
    schema, message = REFUSED[name]
    answer = asked(server, schema, stream=stream)
    assert answer.status_code == 400
    found = answer.json()["error"]
    assert found["type"] == "invalid_request_error"
    # What Python's JSON refuses never becomes a schema.
    assert message in found["message"] or found["message"].startswith("the body: expected JSON")


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_large_on_paper_gives_a_text(server: Server, name: str) -> None:
    answer = asked(server, json.dumps(TAKEN[name]))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"][0] in '"[{'


def test_other_texts_go_on_while_one_is_compiled(server: Server) -> None:
    schema, message = REFUSED["endless"]
    assert asked(server, '{"type": "boolean"}').status_code == 200
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(asked, server, schema)
        for _ in range(5):
            assert server.post("/v1/completions", SHORT).status_code == 200
            # A known schema does not wait behind it, either.
            assert asked(server, '{"type": "boolean"}').status_code == 200
            assert not hostile.done(), "compiled too quickly to show anything"
        answer = hostile.result()
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


async def test_many_of_them_are_turned_away(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each unlike the others; what waits is bounded, and the server goes on."""
    gate = threading.Event()

    def compiled(self: Grammars, grammar: Any) -> Any:
        assert gate.wait(60)
        raise InputError("the JSON schema is too complex")

    monkeypatch.setattr(Grammars, "_compile", compiled)
    try:
        async with serving_here(pipeline) as (_, client):

            def asked_here(number: int) -> Any:
                schema = {"type": "object", "description": str(number)}
                form = {"type": "json_schema", "json_schema": {"schema": schema}}
                messages = [{"role": "user", "content": "x"}]
                body = {"model": "tiny", "messages": messages, "response_format": form}
                return client.post("/v1/chat/completions", json=body)

            waiting = {asyncio.create_task(asked_here(number)) for number in range(7)}
            turned: set[Any] = set()
            while len(turned) < 7 - Compiler.most:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                turned |= done
            for one in turned:
                assert one.result().status_code == 429
                assert one.result().headers["retry-after"]
            assert (await client.post("/v1/completions", json=SHORT)).status_code == 200
            assert not any(one.done() for one in waiting)
            gate.set()
            refused = [(await one).status_code for one in waiting]
            assert refused == [400] * Compiler.most
    finally:
        gate.set()


def test_the_decoding_thread_compiles_nothing(bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when many requests wait, each with a schema of its own."""
    from edgedec.serve.turns import Work

    compile_: Callable[..., Any] = Grammars._compile
    threads: list[str] = []

    def compiled(self: Grammars, grammar: Any) -> Any:
        threads.append(threading.current_thread().name)
        return compile_(self, grammar)

    monkeypatch.setattr(Grammars, "_compile", compiled)
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        schemas = [{"enum": [f"number {n}"]} for n in range(40)]
        works = [Work([5, 6], GenerateOptions(4, json_schema=schema)) for schema in schemas]
        compiler = Compiler(pipeline.grammars)
        for work in works:
            asyncio.run(compiler.prepare([work]))
        assert len(threads) == len(works)
        for work in works:
            pipeline.generate(work.prompt, work.options)
        assert len(threads) == len(works)
        assert all(name.startswith("edgedec-grammar") for name in threads)
        # What nobody waits for any more is forgotten.
        del work
        works.clear()
        assert len(pipeline.grammars._living) <= 16
        compiler.lane.close()
        compiler.lane.join()
