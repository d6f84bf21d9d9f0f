"""Text to tokens and back, and paths as clients write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Server

from edgedec.pipeline import Pipeline
from edgedec.serve.guard import usual

TALK = [{"role": "user", "content": "Hello there"}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def alone(bundle: Path) -> Iterator[Pipeline]:
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        yield pipeline


def test_a_text_becomes_tokens_and_a_text_again(server: Server) -> None:
    tokens = server.post("/tokenize", {"content": "def f(x):"}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json() == {"content": "def f(x):"}


def test_tokens_around_a_prompt_are_asked_for(server: Server, alone: Pipeline) -> None:
    encode = alone.tokenizer.encode
    for fields, special in (
        ({"content": "Hello"}, False),
        ({"content": "Hello", "add_special": True}, True),
        ({"prompt": "Hello"}, True),
        ({"prompt": "Hello", "add_special": False}, False),
    ):
        found = server.post("/tokenize", fields).json()["tokens"]
        assert found == encode("Hello", add_special_tokens=special), fields


def test_pieces_are_the_tokens_spellings(server: Server) -> None:
    found = server.post("/tokenize", {"content": "é x", "with_pieces": True}).json()["tokens"]
    spelt = b"".join(
        one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"])
        for one in found
    )
    assert spelt == "é x".encode()
    assert [one["id"] for one in found] == server.post("/tokenize", {"content": "é x"}).json()[
        "tokens"
    ]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "none"},
        {"enable_thinking": False, "reasoning_effort": "low"},
        {"chat_template_kwargs": {"custom": [1, {"a": "b"}]}},
        {"add_generation_prompt": False},
    ],
)
def test_a_conversation_is_counted_as_a_chat_reads_it(
    server: Server, alone: Pipeline, more: dict[str, Any]
) -> None:
    asked = {"messages": TALK, **more}
    text = server.post("/apply-template", asked).json()["prompt"]
    counted = server.post("/tokenize", asked).json()["tokens"]
    assert counted == alone.tokenizer.encode(text, add_special_tokens=False)
    chat = server.post("/v1/chat/completions", {**asked, "max_tokens": 1}).json()
    assert chat["usage"]["prompt_tokens"] == len(counted)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("/v1/models/", "/v1/models"),
        ("//v1/models", "/v1/models"),
        ("/models", "/v1/models"),
        ("/chat/completions", "/v1/chat/completions"),
        ("//completions/", "/v1/completions"),
        ("/", "/"),
        ("//", "/"),
        ("/page/../x", "/page/../x"),
        ("/models/x", "/models/x"),
    ],
)
def test_a_path_is_taken_as_clients_write_it(asked: str, found: str) -> None:
    assert usual(asked) == found


def test_short_paths_are_answered_and_guarded(server: Server) -> None:
    for path in ("//v1/chat/completions", "/chat/completions", "/v1/chat/completions/"):
        answer = server.post(path, {"messages": TALK, "max_tokens": 2})
        assert answer.status_code == 200, path
        assert answer.json()["usage"]["completion_tokens"] == 2
    assert server.post("/chat/nothing", {}).status_code == 404  # the control


def test_a_call_without_arguments_is_one_of_an_empty_object(server: Server) -> None:
    texts = []
    for arguments in ("", None, "{}"):
        call = {"id": "c1", "type": "function", "function": {"name": "look_up"}}
        if arguments is not None:
            call["function"]["arguments"] = arguments
        talk = [
            *TALK,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ]
        answer = server.post("/apply-template", {"messages": talk, "tools": [TOOL]})
        assert answer.status_code == 200, answer.text
        texts.append(answer.json()["prompt"])
    assert len(set(texts)) == 1
    broken = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    talk = [*TALK, {"role": "assistant", "content": None, "tool_calls": [broken]}]
    assert server.post("/apply-template", {"messages": talk}).status_code == 400  # the control
