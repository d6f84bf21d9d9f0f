"""``/v1/responses`` through OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from served_here import serving_here
from serving import Server

from edgedec import Pipeline
from edgedec.serve.errors import ApiError
from edgedec.serve.turns import Ticket

GIVEN: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 24}
TALK: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    {"role": "user", "content": [{"type": "input_text", "text": "How are you?"}]},
]
PLAIN: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "How are you?"},
]


def chat_text(server: Server, messages: Any) -> Any:
    return server.client().chat.completions.create(
        model="tiny", messages=messages, temperature=0, max_tokens=24
    )


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_the_text_of_a_chat(server: Server, stream: bool) -> None:
    client = server.client().responses
    for given, messages in (
        ({"input": "Hello"}, [{"role": "user", "content": "Hello"}]),
        ({"input": TALK, "instructions": "Be brief."}, PLAIN),
    ):
        wanted = chat_text(server, messages)
        if stream:
            events = list(client.create(**GIVEN, **given, stream=True))
            answer = events[-1].response
            pieces = [e.delta for e in events if e.type == "response.output_text.delta"]
            assert "".join(pieces) == answer.output_text
            assert len(pieces) > 1
        else:
            answer = client.create(**GIVEN, **given)
        assert answer.output_text == wanted.choices[0].message.content
        assert answer.usage.input_tokens == wanted.usage.prompt_tokens
        assert answer.usage.output_tokens == wanted.usage.completion_tokens == 24
        assert (answer.status, answer.object, answer.model) == ("incomplete", "response", "tiny")
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.model_extra["edgedec"]["drafted"] > 0


def test_the_events_are_those_of_the_api(server: Server) -> None:
    """Their order, their numbers, and that each repeats what the others said."""
    text = server.client().responses.create(**GIVEN, input="Hello").output_text
    given = {**GIVEN, "input": "Hello", "stop": text[-3:]}
    events = list(server.client().responses.create(**GIVEN, input="Hello", stream=True))
    stopped = server.post("/v1/responses", {**given, "stream": True}).text
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", *["response.output_text.delta"] * deltas,
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    *_, done, part, item, last = events
    assert done.text == part.part.text == item.item.content[0].text == last.response.output_text
    assert events[2].item.id == item.item.id == last.response.output[0].id == done.item_id
    assert events[0].response.id == last.response.id
    assert events[0].response.status == "in_progress"
    # A text that ends by itself is complete.
    lines = stopped.strip().splitlines()
    assert lines[-2] == "event: response.completed"
    assert json.loads(lines[-1].removeprefix("data: "))["response"]["status"] == "completed"


def test_what_changes_nothing_is_named(server: Server) -> None:
    body = {**GIVEN, "input": "x", "store": True, "include": ["reasoning.encrypted_content"],
            "truncation": "disabled", "tools": [], "tool_choice": "auto", "user": "me"}  # fmt: skip
    answer = server.post("/v1/responses", body)
    assert answer.status_code == 200, answer.text
    named = set(answer.headers["x-edgedec-ignored"].split(", "))
    assert named == {"store", "include", "truncation", "tools", "tool_choice", "user"}
    assert answer.json()["store"] is False


def test_what_it_does_not_have(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="stores no answers"):
        server.client().responses.retrieve("resp_1")
    with pytest.raises(openai.NotFoundError, match="no embeddings: use a server for embeddings"):
        server.client().embeddings.create(model="tiny", input="x")


@pytest.mark.parametrize(
    ("path", "body", "ends"),
    [
        ("/v1/responses", {"input": "x"}, ["event: response.failed", '"status": "failed"']),
        ("/api/chat", {"messages": TALK[:1]}, ['{"error":"it broke"}']),
        ("/api/generate", {"prompt": "x"}, ['{"error":"it broke"}']),
        ("/v1/chat/completions", {"messages": TALK[:1]}, ['"message": "it broke"', "[DONE]"]),
        (
            "/v1/messages",
            {"messages": TALK[:1], "max_tokens": 24},
            ["event: error", '"error": {"type": "overloaded_error", "message": "it broke"}'],
        ),
        ("/completion", {"prompt": "x"}, ['{"error": {"code": 503, "message": "it broke"']),
    ],
)
async def test_a_stream_that_fails_says_so(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, ends: list[str]
) -> None:
    put = Ticket.put

    def broken(ticket: Ticket, events: Any) -> bool:
        goes_on = put(ticket, events)
        ticket.fail(ApiError(503, "it broke"))
        return goes_on

    async with serving_here(pipeline) as (_, client):
        fields = {"model": "tiny", "stream": True, **body}
        assert "it broke" not in (await client.post(path, json=fields)).text  # the control
        monkeypatch.setattr(Ticket, "put", broken)
        answer = await client.post(path, json=fields)
        assert answer.status_code == 200
        assert all(end in answer.text for end in ends)
