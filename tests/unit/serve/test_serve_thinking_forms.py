"""Thinking in the forms of Ollama's API and of ``/v1/responses``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from served_here import serving_here
from thinking_models import ANSWER, THOUGHTS, thinking_pipeline

from edgedec import Pipeline
from edgedec.errors import BundleError, InputError
from edgedec.text.chat import ChatTemplate

THOUGHT, ANSWERED = "".join(THOUGHTS).strip(), "".join(ANSWER)
ASKED: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": [{"role": "user", "content": "Hi"}], "options": {"temperature": 0}},
    "/api/generate": {"prompt": "Hi", "options": {"temperature": 0}},
}
INPUT: dict[str, Any] = {"input": "Hi", "temperature": 0}


@pytest.fixture(scope="module")
def qwen() -> Iterator[Pipeline]:
    with thinking_pipeline("qwen", parallel=4) as pipeline:
        yield pipeline


async def ask(client: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    answer = await client.post(path, json={**ASKED.get(path, INPUT), **fields})
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("stream", [True, False])
async def test_ollamas(qwen: Pipeline, path: str, stream: bool) -> None:
    async def told(client: httpx.AsyncClient, **fields: Any) -> tuple[str, str]:
        answer = await ask(client, path, stream=stream, **fields)
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
                answer = await client.post("/api/chat", json={**ASKED["/api/chat"], "think": wrong})
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
        answer = Response.model_validate((await ask(client, "/v1/responses")).json())
        thinking, message = answer.output
        assert thinking.type == "reasoning"
        assert [part.text for part in thinking.content or []] == [THOUGHT]
        assert message.type == "message"
        assert answer.output_text == ANSWERED
        assert answer.usage is not None
        counted = answer.usage.output_tokens_details.reasoning_tokens
        assert len(THOUGHTS) <= counted < answer.usage.output_tokens
        off = await ask(client, "/v1/responses", reasoning={"effort": "none"})
        answer = Response.model_validate(off.json())
        assert [item.type for item in answer.output] == ["message"]
        assert answer.output_text == ANSWERED
        # A client sends both back; the thinking is not a message.
        talk = [{"role": "user", "content": "Hi"}, *off.json()["output"],
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"role": "user", "content": "And?"}]  # fmt: skip
        assert (await ask(client, "/v1/responses", input=talk)).json()["status"] == "completed"


async def test_responses_streamed(qwen: Pipeline) -> None:
    async with serving_here(qwen) as (_, client):
        whole = (await ask(client, "/v1/responses", stream=True)).text
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
