"""What numbers and fields mean elsewhere means the same here.

The right values: OpenAI's API reference; Ollama's docs (``api.md``, ``modelfile.md``: -1 and -2 of
``num_predict``); llama.cpp's server (``n_predict`` -1, ``seed`` -1, ``top_k`` 0, ``top_p`` 0 keeps
one token); vLLM's ``SamplingParams`` (``top_k`` -1); JSON Schema 2020-12 (40.0 is an integer).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import tiny_tokenizers
from served_here import serving_here

from edgedec import Pipeline
from edgedec.errors import InputError
from edgedec.grammar.spec import json_schema
from edgedec.serve import ollama, parsing
from edgedec.serve.errors import ApiError
from edgedec.serve.settings import Limits
from edgedec.text.chat import ending
from edgedec.text.tokenizer import Tokenizer

UNLIMITED = 1 << 24


class Reading:
    """Prompts of any model, without one."""

    sampling, template = None, None
    tokenizer = Tokenizer(tiny_tokenizers.byte_level(), {})

    def encode(self, text: str) -> list[int]:
        return [1]

    def encode_chat(self, messages: Any, *_: Any, **asked: Any) -> list[int]:
        ending(messages, asked["add_generation_prompt"], asked["continue_final_message"])
        return [1]


def options_of(fields: dict[str, Any], route: str = "completion") -> Any:
    given = {"messages": [{"role": "user", "content": "x"}]} if route == "chat" else {"prompt": "x"}
    reader = {"completion": parsing.completion, "chat": parsing.chat,
              "generate": ollama.read_generate}[route]  # fmt: skip
    (work,) = reader({**given, **fields}, Reading(), Limits()).works  # type: ignore[arg-type]
    return work.options


def value_of(options: Any, name: str) -> Any:
    return (
        getattr(options, name, None) if hasattr(options, name) else getattr(options.sampling, name)
    )


CASES: list[tuple[str, dict[str, Any], str, Any]] = [
    ("completion", {"max_tokens": -1}, "max_new_tokens", UNLIMITED),
    ("completion", {"max_tokens": -2}, "max_new_tokens", UNLIMITED),
    ("completion", {"max_tokens": 3.0}, "max_new_tokens", 3),
    ("completion", {}, "max_new_tokens", 16),  # the control: OpenAI's default
    ("chat", {"max_completion_tokens": -1}, "max_new_tokens", UNLIMITED),
    ("chat", {"max_tokens": -1, "max_completion_tokens": 5.0}, "max_new_tokens", 5),
    ("generate", {"options": {"num_predict": -1}}, "max_new_tokens", UNLIMITED),
    ("generate", {"options": {"num_predict": -2}}, "max_new_tokens", UNLIMITED),
    ("generate", {"options": {"num_predict": 7.0}}, "max_new_tokens", 7),
    ("completion", {"seed": -1}, "seed", None),
    ("completion", {"seed": -2}, "seed", -2),
    ("completion", {"seed": 42.0}, "seed", 42),
    ("generate", {"options": {"seed": -1}}, "seed", None),
    ("completion", {"top_k": -1}, "top_k", 0),
    ("completion", {"top_k": 40.0}, "top_k", 40),
    ("generate", {"options": {"top_k": -1}}, "top_k", 0),
    ("completion", {"repeat_penalty": 1.5}, "repetition_penalty", 1.5),
    ("completion", {"stop": [""]}, "stop", ()),
    ("completion", {"stop": ""}, "stop", ()),
    ("completion", {"stop": ["", "a"]}, "stop", ("a",)),
    ("completion", {"logit_bias": []}, "logit_bias", {}),
    ("chat", {"continue_final_message": True}, "max_new_tokens", UNLIMITED),
    ("chat", {"add_generation_prompt": True}, "max_new_tokens", UNLIMITED),
    ("generate", {"options": {"typical_p": 0.7, "tfs_z": 0.5, "num_gpu": -1}}, "top_k", 0),
]


@pytest.mark.parametrize(("route", "fields", "name", "value"), CASES)
def test_values(route: str, fields: dict[str, Any], name: str, value: Any) -> None:
    assert value_of(options_of(fields, route), name) == value


def test_a_top_p_of_zero_keeps_one_token() -> None:
    assert 0 < options_of({"top_p": 0}).sampling.top_p < 1e-300
    assert options_of({"top_p": 0.5}).sampling.top_p == 0.5


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("completion", {"max_tokens": 0}),
        ("completion", {"max_tokens": -3}),
        ("completion", {"max_tokens": 3.5}),
        ("completion", {"max_tokens": True}),
        ("completion", {"max_tokens": "3"}),
        ("completion", {"top_k": -2}),
        ("completion", {"top_k": 1e300}),
        ("completion", {"seed": 0.5}),
        ("completion", {"top_p": -0.1}),
        ("completion", {"stop": [3]}),
        ("chat", {"continue_final_message": "yes"}),
        ("generate", {"options": {"num_predict": 0}}),
    ],
)
def test_what_has_no_meaning_is_refused(route: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="expected"):
        options_of(fields, route)


def test_both_ends_of_a_conversation_exclude_each_other() -> None:
    both = {"continue_final_message": True, "add_generation_prompt": True}
    with pytest.raises(InputError, match="exclude each other"):
        options_of(both, "chat")


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string", "format": "color"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"properties": {"format": {"type": "string", "format": "int32"}}},
         {"properties": {"format": {"type": "string"}}, "additionalProperties": False}),
        ({"items": {"anyOf": [{"format": "byte"}, {"format": "uuid"}]}},
         {"items": {"anyOf": [{}, {"format": "uuid"}]}}),
        ({"const": {"format": "x"}, "enum": [{"format": "x"}]},
         {"const": {"format": "x"}, "enum": [{"format": "x"}]}),
        ({"$defs": {"format": {"format": "password"}}}, {"$defs": {"format": {}}}),
        ({"default": {"format": "x"}, "examples": [{"format": "x"}]},
         {"default": {"format": "x"}, "examples": [{"format": "x"}]}),
        ({"format": 3}, {"format": 3}),
    ],
)  # fmt: skip
def test_an_unknown_format_is_an_annotation(schema: Any, kept: Any) -> None:
    assert json.loads(json_schema(schema).source) == kept


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        # As curl -d sends it, and without the header.
        ("/api/generate", {"Content-Type": "application/x-www-form-urlencoded"}, 200),
        ("/api/generate", {}, 200),
        ("/api/show", {"Content-Type": "application/x-www-form-urlencoded"}, 200),
        # A page may send these types without asking, and its browser says so.
        ("/api/generate", {"Origin": "http://localhost"}, 415),
        ("/api/generate", {"Referer": "http://localhost/x"}, 415),
        ("/api/generate", {"Sec-Fetch-Site": "none"}, 415),
        ("/api/generate", {"Content-Type": "text/plain"}, 415),
        ("/api/generate", {"Content-Type": "multipart/form-data"}, 415),
        ("/v1/completions", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("/v1/completions", {}, 415),
    ],
)
async def test_ollamas_examples_need_no_content_type(
    pipeline: Pipeline, path: str, headers: dict[str, str], status: int
) -> None:
    body = (
        b'{"model": "tiny"}'
        if path == "/api/show"
        else (
            b'{"model": "tiny", "prompt": "x", "stream": false, "raw": true,'
            b' "options": {"num_predict": 1}}'
        )
    )
    async with serving_here(pipeline) as (_, client):
        answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code == status
        empty = await client.post(path, headers=headers)
        assert empty.status_code == 415  # the control: nothing that could be JSON
