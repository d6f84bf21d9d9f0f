"""Anthropic's ``/v1/messages``: a chat's texts and calls in the form that its clients read."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
from served_here import serving_here
from serving import Server
from test_serve_tools import SCHEMAS, caller, needs_grammars

from edgedec import Pipeline
from edgedec.serve.anthropic import MessagesForm, body_of
from edgedec.serve.errors import ApiError
from edgedec.serve.parsing import ParsedRequest

__all__ = ["caller"]  # a fixture
PATH = "/v1/messages"
GIVEN: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 24}
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {"name": name, "description": "x", "input_schema": schema} for name, schema in SCHEMAS.items()
]
OSLO = {"city": "Oslo", "days": 2}


def asked(server: Server, **fields: Any) -> dict[str, Any]:
    """A message, as it comes whole."""
    found = server.post(PATH, {**GIVEN, **fields})
    assert found.status_code == 200, found.text
    message: dict[str, Any] = found.json()
    return message


def events(server: Server, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream, whose names and data agree."""
    answer = server.post(PATH, {**GIVEN, **fields, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for part in answer.text.strip().split("\n\n"):
        name, data = part.splitlines()
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def put_together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream's events make, as the API's clients put it together."""
    assert [parts[0]["type"], parts[-1]["type"]] == ["message_start", "message_stop"]
    message, inputs = dict(parts[0]["message"]), dict[int, str]()
    for event in parts[1:-1]:
        kind = event["type"]
        if kind == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif kind == "content_block_delta":
            delta, block = event["delta"], message["content"][event["index"]]
            if delta["type"] == "input_json_delta":
                place = event["index"]
                inputs[place] = inputs.get(place, "") + delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] += delta[name]
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    for place, text in inputs.items():
        message["content"][place]["input"] = json.loads(text)
    return message


def chat(server: Server, messages: Any, **more: Any) -> Any:
    given = {"model": "tiny", "temperature": 0, "max_tokens": 24, "messages": messages, **more}
    return server.client().chat.completions.create(**given)


TALK = [
    {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
    {"role": "user", "content": "And you?"},
]
PLAIN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How ?"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "And you?"},
]


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_the_text_of_a_chat(server: Server, stream: bool) -> None:
    for given, messages in (
        ({"messages": HELLO}, HELLO),
        ({"messages": TALK, "system": [{"type": "text", "text": "Be brief."}]}, PLAIN),
    ):
        right = chat(server, messages)
        found = put_together(events(server, **given)) if stream else asked(server, **given)
        assert found["content"] == [{"type": "text", "text": right.choices[0].message.content}]
        assert (found["role"], found["type"], found["model"]) == ("assistant", "message", "tiny")
        assert (found["stop_reason"], found["stop_sequence"]) == ("max_tokens", None)
        usage = found["usage"]
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert (prompt, usage["output_tokens"]) == (right.usage.prompt_tokens, 24)
        count = server.post(f"{PATH}/count_tokens", {"model": "tiny", **given}).json()
        assert count == {"input_tokens": prompt}


@pytest.mark.parametrize("stream", [False, True])
def test_stop_sequences_are_named(server: Server, stream: bool) -> None:
    text = asked(server, messages=HELLO)["content"][0]["text"]
    for stops in (["zzz", text[6:9]], [text[6:9]], [text[6:9], text[6:10]]):
        given = {"messages": HELLO, "stop_sequences": stops}
        found = put_together(events(server, **given)) if stream else asked(server, **given)
        assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", text[6:9])
        assert found["content"][0]["text"] == text[: text.index(text[6:9])]


@pytest.mark.parametrize("stream", [False, True])
def test_calls(caller: Server, stream: bool) -> None:
    given: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "max_tokens": 60}
    found = put_together(events(caller, **given)) if stream else asked(caller, **given)
    text, call = found["content"]
    assert text["text"].strip() == "Let me look."
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", OSLO)
    assert found["stop_reason"] == "tool_use"
    # It goes on with the result, which is in the prompt as in a chat.
    result = {"type": "tool_result", "tool_use_id": call["id"],
              "content": [{"type": "text", "text": "rain"}]}  # fmt: skip
    talk = [*HELLO, {"role": "assistant", "content": [text, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]}]  # fmt: skip
    counted = caller.post(f"{PATH}/count_tokens", {"messages": talk, "tools": TOOLS}).json()
    function = {"name": "weather", "arguments": json.dumps(OSLO)}
    told = [*HELLO,
            {"role": "assistant", "content": text["text"],
             "tool_calls": [{"id": call["id"], "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call["id"], "content": "rain"},
            {"role": "user", "content": "So?"}]  # fmt: skip
    tools = [{"type": "function", "function": {"name": one["name"], "description": "x",
              "parameters": one["input_schema"]}} for one in TOOLS]  # fmt: skip
    asked_there = caller.post("/tokenize", {"messages": told, "tools": tools}).json()
    assert counted["input_tokens"] == asked_there["count"]
    none = asked(caller, **given, tool_choice={"type": "none"})  # the control
    assert none["stop_reason"] == "end_turn"
    assert [one["type"] for one in none["content"]] == ["text"]


@pytest.mark.parametrize(
    "choice", [{"type": "any"}, {"type": "tool", "name": "stop", "disable_parallel_tool_use": True}]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call(caller: Server, choice: dict[str, Any], stream: bool) -> None:
    needs_grammars()
    given: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "tool_choice": choice}
    given |= {"max_tokens": 60}
    found = put_together(events(caller, **given)) if stream else asked(caller, **given)
    (call,) = found["content"]
    assert call["type"] == "tool_use"
    assert call["name"] in ([choice["name"]] if "name" in choice else list(SCHEMAS))
    assert found["stop_reason"] == "tool_use"


def test_thinking_and_several_calls_are_blocks_of_their_own() -> None:
    """Of a writer's chunks, as those of a model that thinks."""
    form = MessagesForm(ParsedRequest([], True, True, False), {"model": "m"})
    form.begin = lambda: ""  # type: ignore[method-assign]

    def delta(**fields: Any) -> str:
        return form.chunk({"choices": [{"delta": fields, "finish_reason": None}]})

    def call(index: int, arguments: str, **named: Any) -> dict[str, Any]:
        function = {"arguments": arguments, **named}
        return {"index": index, "id": f"call_{index}", "function": function}

    text = (
        delta(reasoning_content="Let ") + delta(reasoning_content="me.") + delta(content="I ")
        + delta(content="look.", tool_calls=[call(0, "", name="a")])
        + delta(tool_calls=[call(0, '{"x": '), call(0, "1}"), call(1, "{}", name="b")])
    )  # fmt: skip
    usage = {"prompt_tokens": 5, "completion_tokens": 9,
             "prompt_tokens_details": {"cached_tokens": 2}}  # fmt: skip
    text += form.end({"usage": usage})
    found = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    start = {"type": "message_start", "message": {"content": [], "usage": {}}}
    message = put_together([start, *found])
    assert message["content"] == [
        {"type": "thinking", "thinking": "Let me.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_0", "name": "a", "input": {"x": 1}},
        {"type": "tool_use", "id": "call_1", "name": "b", "input": {}},
    ]
    kinds = [one["type"] for one in found]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    usage = message["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (3, 2)


def test_harmless_fields_are_named(server: Server) -> None:
    body = {**GIVEN, "messages": HELLO, "metadata": {"user_id": "x"}, "service_tier": "auto",
            "thinking": {"type": "adaptive", "display": "omitted"}}  # fmt: skip
    answer = server.post(PATH, body)
    assert answer.status_code == 200, answer.text
    named = set(answer.headers["x-edgedec-ignored"].split(", "))
    assert named == {"metadata", "service_tier", "thinking.display"}


async def test_its_key_is_taken_as_its_clients_send_it(pipeline: Pipeline) -> None:
    key = "a-key-of-this-test-0123456789"
    async with serving_here(pipeline, keys=(key,)) as (_, client):
        body = {**GIVEN, "messages": HELLO, "max_tokens": 2}
        for headers, status in (
            ({"x-api-key": key}, 200),
            ({"x-api-key": "another"}, 401),
            ({"x-api-key": key, "authorization": "Bearer another"}, 401),
            ({}, 401),
        ):
            assert (await client.post(PATH, json=body, headers=headers)).status_code == status


@pytest.mark.full
@pytest.mark.skipif(find_spec("anthropic") is None, reason="anthropic not installed")
@pytest.mark.parametrize("stream", [False, True])
def test_its_own_client(caller: Server, stream: bool) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=caller.url, api_key="none", max_retries=0)
    given: Any = {"model": "tiny", "max_tokens": 60, "messages": HELLO, "tools": TOOLS}
    given["extra_body"] = {"temperature": 0}
    if stream:
        with client.messages.stream(**given) as texts:
            found = texts.get_final_message()
    else:
        found = client.messages.create(**given)
    assert [one.type for one in found.content] == ["text", "tool_use"]
    assert found.content[1].input == OSLO
    assert found.usage.output_tokens == 5
    client.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "not_found_error"), (413, "request_too_large"), (429, "rate_limit_error"),
        (503, "overloaded_error"), (504, "timeout_error"), (422, "invalid_request_error"),
        (500, "api_error"), (507, "api_error"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_kind_of_its_status(status: int, kind: str) -> None:
    error = {"type": kind, "message": "why"}
    assert body_of(ApiError(status, "why")) == {"type": "error", "error": error}
