"""The APIs over models that think: apart from the answer, switched, limited, and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny_bundles
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from served_here import serving_here
from serving import serving
from thinking_models import ANSWER, MANNERS, THOUGHTS, thinking_checkpoint, thinking_pipeline

from edgedec import GenerateOptions, Pipeline
from edgedec.errors import BundleError, InputError
from edgedec.export import ExportOptions
from edgedec.serve.answers import Writer
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.turns import Work
from edgedec.text.chat import ChatTemplate

THOUGHT, ANSWERED = "".join(THOUGHTS).strip(), "".join(ANSWER)
OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


@pytest.fixture(scope="module", params=[*MANNERS])
def each(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    yield from opened(request.param)


@pytest.fixture(scope="module")
def qwen() -> Iterator[Pipeline]:
    yield from opened("qwen")


def opened(manner: str) -> Iterator[Pipeline]:
    with thinking_pipeline(manner, parallel=4, generation=OWN) as pipeline:
        yield pipeline


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, **fields}
    return await client.post("/v1/chat/completions", json=body)


async def message(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await ask(client, **fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["choices"][0]["message"]
    return found


async def test_thinking_and_answer_are_apart_whole_and_streamed(each: Pipeline) -> None:
    async with serving_here(each) as (_, client):
        answer = (await ask(client)).json()
        told = answer["choices"][0]["message"]
        assert (told["reasoning_content"], told["content"]) == (THOUGHT, ANSWERED)
        usage = answer["usage"]
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        assert len(THOUGHTS) <= thought < usage["completion_tokens"]
        streamed = await ask(client, stream=True, stream_options={"include_usage": True})
        lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
        *chunks, last = map(json.loads, lines)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(one.get("reasoning_content", "") for one in deltas) == THOUGHT
        assert "".join(one.get("content", "") for one in deltas) == ANSWERED
        assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": thought}
        # The thinking comes first.
        first = next(i for i, one in enumerate(deltas) if one.get("content"))
        assert not any("reasoning_content" in one for one in deltas[first + 1 :])


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"reasoning_effort": "none"},
        {"edgedec": {"think_tokens": 0}},
    ],
)
async def test_switched_off(each: Pipeline, fields: dict[str, Any]) -> None:
    async with serving_here(each) as (_, client):
        told = await message(client, **fields)
        assert (told.get("reasoning_content"), told["content"]) == (None, ANSWERED)


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": True},
        {"reasoning_effort": "high"},
        {"reasoning_effort": "none", "enable_thinking": True},
        {"chat_template_kwargs": {"mood": "good", "size": 1.5, "not": None}},
        {"chat_template_kwargs": {"controls": {"length": "short"}, "tools_in": ["search"]}},
    ],
)
async def test_left_on(each: Pipeline, fields: dict[str, Any]) -> None:
    async with serving_here(each) as (_, client):
        assert (await message(client, **fields))["reasoning_content"] == THOUGHT


async def test_what_the_template_reads() -> None:
    with thinking_pipeline("harmony", parallel=2) as pipeline:
        async with serving_here(pipeline) as (served, client):
            seen: list[str] = []
            render = served.tokenizer.render

            def noted(*args: Any, **more: Any) -> str:
                seen.append(render(*args, **more))
                return seen[-1]

            served.tokenizer.render = noted  # type: ignore[method-assign]
            await message(client, reasoning_effort="high")
            await message(client, chat_template_kwargs={"reasoning_effort": "low"})
            await message(client)
            efforts = [text.partition("Reasoning: ")[2].split("<")[0] for text in seen]
            assert efforts == ["high", "low", "medium"]


async def test_budgets_grammars_and_logprobs(qwen: Pipeline) -> None:
    pytest.importorskip("llguidance")
    async with serving_here(qwen) as (_, client):
        told = await message(client, edgedec={"think_tokens": 2})
        assert THOUGHT.startswith(told["reasoning_content"])
        assert len(told["reasoning_content"]) < len(THOUGHT)
        assert told["content"] == ANSWERED
        schema = {"enum": ["a", "b"]}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        told = await message(client, response_format=form)
        assert told["reasoning_content"] == THOUGHT
        assert told["content"] in ('"a"', '"b"')
        answer = (await ask(client, logprobs=True)).json()
        entries = answer["choices"][0]["logprobs"]["content"]
        assert "".join(entry["token"] for entry in entries).startswith(f"\n\n{ANSWERED}")


async def test_chats_are_drawn_as_the_model_asks_and_completions_as_the_api_does(
    qwen: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    stream = Pipeline.stream

    def noted(pipeline: Pipeline, prompt: Any, options: Any, **more: Any) -> Any:
        drawn.append(options.sampling)
        return stream(pipeline, prompt, options, **more)

    monkeypatch.setattr(Pipeline, "stream", noted)
    async with serving_here(qwen) as (_, client):
        (card,) = (await client.get("/v1/models")).json()["data"]
        assert card["edgedec"]["sampling"] == OWN
        await ask(client, temperature=None)
        await ask(client, temperature=None, top_k=5)
        await ask(client)
        await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
    found = [(one.temperature, one.top_p, one.top_k) for one in drawn]
    assert found == [(0.6, 0.95, 20), (0.6, 0.95, 5), (0, 0.95, 20), (1.0, 1.0, 0)]


def test_thinking_that_a_time_limit_releases_is_sent(qwen: Pipeline) -> None:
    """It belongs to no token."""
    result = qwen.generate(messages=[{"role": "user", "content": "Hi"}], max_new_tokens=4)
    late = replace(result, thinking=f"{result.thinking} <", finish_reason="timeout")
    parsed = ParsedRequest(
        [Work([1], GenerateOptions())], stream=True, usage=False, pieces=False, chat=True
    )
    for one, sent in ((late, [" <"]), (result, [])):
        chunks = Writer(parsed, qwen.tokenizer, "tiny").end(0, one)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == sent


@pytest.mark.full
def test_openais_client_reads_the_thinking(tmp_path: Path) -> None:
    target = thinking_checkpoint(tmp_path / "target", OWN)
    options = ExportOptions(target, tmp_path / "thinker", weights="fp32", parity=False)
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    with serving(tiny_bundles.kept(options), "--threads", "1") as server:
        ask = server.client().chat.completions.create
        answer = ask(model="thinker", messages=messages)
        told = answer.choices[0].message
        assert (told.reasoning_content, told.content) == ("first then", ANSWERED)  # type: ignore[attr-defined]
        assert answer.usage is not None
        assert answer.usage.completion_tokens_details is not None
        assert answer.usage.completion_tokens_details.reasoning_tokens == 4
        off = ask(model="thinker", messages=messages, reasoning_effort="none").choices[0].message
        assert (off.content, hasattr(off, "reasoning_content")) == (ANSWERED, False)
        thought = ""
        for chunk in ask(model="thinker", messages=messages, stream=True):
            thought += getattr(chunk.choices[0].delta, "reasoning_content", "")
        assert thought == "first then"


BODIES: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": [{"role": "user", "content": "Hi"}], "options": {"temperature": 0}},
    "/api/generate": {"prompt": "Hi", "options": {"temperature": 0}},
}
INPUT: dict[str, Any] = {"input": "Hi", "temperature": 0}


async def posted(client: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    answer = await client.post(path, json={**BODIES.get(path, INPUT), **fields})
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [True, False])
async def test_ollamas(qwen: Pipeline, path: str, stream: bool) -> None:
    async def told(client: httpx.AsyncClient, **fields: Any) -> tuple[str, str]:
        answer = await posted(client, path, stream=stream, **fields)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        parts = [line.get("message", line) for line in lines]
        thinking = "".join(part.get("thinking", "") for part in parts)
        key = "content" if path == "/api/chat" else "response"
        return thinking, "".join(part[key] for part in parts)

    async with serving_here(qwen) as (_, client):
        for on in ({}, {"think": True}, {"think": "high"}):
            assert await told(client, **on) == (THOUGHT, ANSWERED)
        assert await told(client, think=False) == ("", ANSWERED)


async def test_the_template_is_rendered_once_for_all_who_ask_what_the_model_can(
    qwen: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    real = ChatTemplate.render

    def render(template: ChatTemplate, *args: Any, **options: Any) -> str:
        rendered.append(template.source)
        return real(template, *args, **options)

    monkeypatch.setattr(ChatTemplate, "render", render)
    async with serving_here(qwen) as (_, client):
        first = (await client.post("/api/show", json={})).json()
        once = len(rendered)
        again = (await client.post("/api/show", json={"model": "other"})).json()
    assert first == again
    assert first["template"] == rendered[0]
    assert len(rendered) == once > 0


@pytest.mark.parametrize("passes", [True, False])
async def test_what_a_template_failed_to_tell_is_asked_again(
    qwen: Pipeline, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """A template that was stopped may do next time; the control refuses, which it always will."""
    failing, real = [True], ChatTemplate.render

    def render(template: ChatTemplate, *args: Any, **options: Any) -> str:
        if failing:
            raise BundleError("it was stopped") if passes else InputError("no")
        return real(template, *args, **options)

    async def able(client: httpx.AsyncClient) -> list[str]:
        shown = await client.post("/api/show", json={})
        found: list[str] = shown.json()["capabilities"]
        return found

    assert qwen.tokenizer.chat_template is not None
    monkeypatch.setattr(qwen.tokenizer.chat_template, "_switches", None)
    monkeypatch.setattr(ChatTemplate, "render", render)
    async with serving_here(qwen) as (_, client):
        assert await able(client) == ["completion"]
        failing.clear()
        after = ["completion", "tools", "thinking"] if passes else ["completion"]
        assert await able(client) == after


async def test_what_ollamas_clients_are_told(qwen: Pipeline, pipeline: Pipeline) -> None:
    async def able(one: Pipeline) -> list[str]:
        async with serving_here(one) as (_, client):
            shown = await client.post("/api/show", json={"model": "tiny"})
            for wrong, message in ((3, "think: expected a text"), ("very", "one of low, medium")):
                answer = await client.post(
                    "/api/chat", json={**BODIES["/api/chat"], "think": wrong}
                )
                assert answer.status_code == 400
                assert message in answer.json()["error"]
            raw = {"prompt": "x", "raw": True, "think": True}
            answer = await client.post("/api/generate", json=raw)
            assert "a plain text has no thinking" in answer.json()["error"]
            found: list[str] = shown.json()["capabilities"]
            return found

    assert await able(qwen) == ["completion", "tools", "thinking"]
    assert await able(pipeline) == ["completion", "tools"]  # the control


async def test_responses_whole(qwen: Pipeline) -> None:
    async with serving_here(qwen) as (_, client):
        answer = Response.model_validate((await posted(client, "/v1/responses")).json())
        thinking, message = answer.output
        assert thinking.type == "reasoning"
        assert [part.text for part in thinking.content or []] == [THOUGHT]
        assert message.type == "message"
        assert answer.output_text == ANSWERED
        assert answer.usage is not None
        counted = answer.usage.output_tokens_details.reasoning_tokens
        assert len(THOUGHTS) <= counted < answer.usage.output_tokens
        off = await posted(client, "/v1/responses", reasoning={"effort": "none"})
        answer = Response.model_validate(off.json())
        assert [item.type for item in answer.output] == ["message"]
        assert answer.output_text == ANSWERED
        # A client sends both back; the thinking is not a message.
        talk = [{"role": "user", "content": "Hi"}, *off.json()["output"],
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"role": "user", "content": "And?"}]  # fmt: skip
        assert (await posted(client, "/v1/responses", input=talk)).json()["status"] == "completed"


async def test_responses_streamed(qwen: Pipeline) -> None:
    async with serving_here(qwen) as (_, client):
        whole = (await posted(client, "/v1/responses", stream=True)).text
    lines = [line[6:] for line in whole.splitlines() if line.startswith("data: ")]
    adapter: Any = TypeAdapter(ResponseStreamEvent)
    events = [adapter.validate_json(line) for line in lines]
    kinds = [event.type.removeprefix("response.") for event in events]
    seen = [kind for n, kind in enumerate(kinds) if kind != kinds[n - 1]]
    assert seen == [
        "created", "in_progress", "output_item.added", "content_part.added",
        "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    pieces: dict[str, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            pieces[event.type] = pieces.get(event.type, "") + event.delta
            assert event.output_index == (event.type == "response.output_text.delta")
    assert list(pieces.values()) == [THOUGHT, ANSWERED]
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]
    assert events[-1].response.output_text == ANSWERED
