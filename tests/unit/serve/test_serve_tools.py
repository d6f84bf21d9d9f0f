"""Calls of functions, through OpenAI's own client, with a chat template that shows tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_bundles
from serving import CONTEXT, Server, serving
from tiny_checkpoints import scripted_checkpoint

from edgedec.export import ExportOptions
from edgedec.serve.calls import Calls
from edgedec.serve.messages import Tools

# As Hermes and Qwen have it.
TEMPLATE = """\
{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>{% endif %}
{% for message in messages %}<{{ message.role }}>{{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
CALL = '{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}'
SCRIPT = ["<|assistant|>", "Let me look. ", "<tool_call>", CALL, "</tool_call>"]
ASKED = [{"role": "user", "content": "Will it rain in Oslo?"}]
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"$ref": "#/$defs/city"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        # A reference within the schema, and what looks like another notation of grammars.
        "$defs": {"city": {"enum": ["Oslo", "Rome"], "description": "city ::= name"}},
    },
    "stop": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": "x", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
FORCED: list[Any] = ["required", {"type": "function", "function": {"name": "stop"}}]


def exported(folder: Path, make: Callable[[Path], Path]) -> Path:
    options = ExportOptions(make(folder / "target"), folder / "tiny", weights="fp32", parity=False)
    return tiny_bundles.kept(options)


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a model that has learnt to write a call."""
    entries = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    bundle = exported(
        tmp_path_factory.mktemp("caller"),
        lambda folder: scripted_checkpoint(folder, SCRIPT, context=CONTEXT, entries=entries),
    )
    with serving(bundle, "--threads", "1", "--drafter", "lookup", "--draft-length", "3") as server:
        yield server


def answered(server: Server, stream: bool, **options: Any) -> tuple[str, list[Any], str, int]:
    """The content, calls, reason and prompt tokens of an answer."""
    given: Any = {"model": "tiny", "messages": ASKED, "temperature": 0, "max_tokens": 60, **options}
    create = server.client().chat.completions.create
    if not stream:
        whole = create(**given)
        (choice,) = whole.choices
        calls = choice.message.tool_calls or []
        found = [(one.id, one.type, one.function.name, one.function.arguments) for one in calls]
        content = choice.message.content or ""
        return content, found, choice.finish_reason, whole.usage.prompt_tokens
    content, reason, prompt, parts = "", "", 0, {}
    for chunk in create(**given, stream=True, stream_options={"include_usage": True}):
        prompt = chunk.usage.prompt_tokens if chunk.usage else prompt
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for one in choice.delta.tool_calls or []:
                part = parts.setdefault(one.index, [one.id, one.type, one.function.name, ""])
                part[3] += one.function.arguments
    return content, [tuple(parts[place]) for place in sorted(parts)], reason, prompt


@pytest.mark.parametrize("stream", [False, True])
class TestChoice:
    def test_auto(self, caller: Server, stream: bool) -> None:
        for chosen in ({}, {"tool_choice": "auto"}):
            content, calls, reason, _ = answered(caller, stream, tools=TOOLS, **chosen)
            assert content.strip() == "Let me look."
            ((key, kind, name, arguments),) = calls
            assert (kind, name, reason) == ("function", "weather", "tool_calls")
            assert key.startswith("call_")
            assert json.loads(arguments) == {"city": "Oslo", "days": 2}

    def test_none_shows_no_tools_and_finds_no_call(self, caller: Server, stream: bool) -> None:
        _, _, _, shown = answered(caller, stream, tools=TOOLS)
        content, calls, reason, prompt = answered(caller, stream, tools=TOOLS, tool_choice="none")
        assert (content, calls, reason) == ("".join(SCRIPT[1:]), [], "stop")
        assert prompt < shown

    def test_a_function_that_was_not_given_is_not_called(
        self, caller: Server, stream: bool
    ) -> None:
        content, calls, reason, _ = answered(caller, stream, tools=TOOLS[1:])
        assert (content, calls, reason) == ("".join(SCRIPT[1:]), [], "stop")

    @pytest.mark.parametrize("choice", FORCED)
    @pytest.mark.parametrize("seed", range(4))
    def test_a_call_is_forced(self, caller: Server, stream: bool, choice: Any, seed: int) -> None:
        jsonschema = pytest.importorskip("jsonschema")
        needs_grammars()
        content, calls, reason, _ = answered(
            caller, stream, tools=TOOLS, tool_choice=choice, temperature=1.5, seed=seed
        )
        ((_, kind, name, arguments),) = calls
        assert (content, kind, reason) == ("", "function", "tool_calls")
        assert name in (SCHEMAS if choice == "required" else ("stop",))
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])

    def test_a_call_that_is_cut_is_none(self, caller: Server, stream: bool) -> None:
        needs_grammars()
        content, calls, reason, _ = answered(
            caller, stream, tools=TOOLS, tool_choice="required", max_tokens=4
        )
        assert (calls, reason) == ([], "length")
        assert content.startswith('{"')


def needs_grammars() -> None:
    pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")


def test_a_conversation_goes_on_after_a_call(caller: Server) -> None:
    client = caller.client()
    given: Any = {"model": "tiny", "tools": TOOLS, "temperature": 0, "max_tokens": 60}
    first = client.chat.completions.create(messages=ASKED, **given)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    second = client.chat.completions.create(messages=[*ASKED, message, result], **given)
    # The call and its result stand in the prompt.
    assert second.usage.prompt_tokens >= first.usage.prompt_tokens + 3
    assert second.choices[0].message.tool_calls[0].function.name == "weather"


@pytest.mark.parametrize("parameters", ["x", {"type": "no such type"}, {"pattern": "("}])
def test_parameters_that_are_no_schema_are_refused(caller: Server, parameters: Any) -> None:
    needs_grammars()
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    if isinstance(parameters, dict) and "pattern" in parameters:
        tools[0]["function"]["parameters"] = {  # type: ignore[index]
            "type": "object", "properties": {"a": {"type": "string", **parameters}},
        }  # fmt: skip
    with pytest.raises(openai.BadRequestError):
        caller.client().chat.completions.create(
            model="tiny", messages=ASKED, tools=tools, tool_choice="required"
        )


def test_a_model_that_calls_nothing(server: Server) -> None:
    for stream in (False, True):
        content, calls, reason, _ = answered(server, stream, tools=TOOLS, max_tokens=12)
        assert content
        assert (calls, reason) == ([], "length")


@pytest.mark.parametrize("name", [["weather"], {"of": "weather"}, None, 1])
def test_a_call_whose_name_is_no_text_stays_text(name: Any) -> None:
    written = json.dumps({"name": name, "arguments": {}})
    calls = Calls(Tools(TOOLS, frozenset({"weather"})))
    assert calls.push(f"<tool_call>{written}</tool_call>") + calls.finish() == (
        f"<tool_call>{written}</tool_call>"
    )
    assert calls.push(f"<tool_call>{CALL}</tool_call>") == ""  # control
    assert len(calls.found) == 1
