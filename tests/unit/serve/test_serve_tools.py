"""Calls of functions, through OpenAI's own client, with a chat template that shows tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_bundles
from kinds import in_full
from serving import CONTEXT, Server, checkpoint, serving
from tiny_checkpoints import scripted_checkpoint

from edgedec.export import ExportOptions
from edgedec.serve.calls import Calls
from edgedec.serve.messages import Tools
from edgedec.text.template_form import Form

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
    @pytest.mark.parametrize("seed", in_full(range(4)))
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


# As Gemma 4 has it: marks are special tokens, and arguments are not JSON.
GEMMA = """\
{% for tool in tools or [] %}<|tool>{{ tool.function.name }}<tool|>{% endfor %}
{% for message in messages %}<{{ message.role }}>{{ message.content }}
{% for call in message.tool_calls or [] %}<|tool_call>call:{{ call.function.name + '{' }}\
{% for name, value in call.function.arguments.items() %}{{ name }}:<|"|>{{ value }}<|"|>\
{% endfor %}}<tool_call|>{% endfor %}{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
THINKS = ["<|assistant|>", "<|channel>", "thought\n", "It may.", "<channel|>", "Let me look.",
          "<|tool_call>", 'call:weather{city:<|"|>Oslo<|"|>,days:2}', "<tool_call|>"]  # fmt: skip


def test_thinking_and_a_call_between_special_tokens(tmp_path: Path) -> None:
    entries = {"eos_token": "<|end|>", "chat_template": GEMMA}
    special = [part for part in THINKS if part[0] == "<"]
    bundle = exported(
        tmp_path,
        lambda folder: scripted_checkpoint(
            folder, THINKS, context=CONTEXT, entries=entries, special=special
        ),
    )
    with serving(bundle, "--threads", "1", "--drafter", "lookup") as server:
        for stream in (False, True):
            content, calls, reason, _ = answered(server, stream, tools=TOOLS)
            ((_, _, name, arguments),) = calls
            assert (content, name, reason) == ("Let me look.", "weather", "tool_calls")
            assert json.loads(arguments) == {"city": "Oslo", "days": 2}
        create = server.client().chat.completions.create
        message = create(model="tiny", messages=ASKED, temperature=0).choices[0].message
        assert (message.model_extra or {})["reasoning_content"] == "It may."


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


# Templates that know nothing of tools: of any kind, and of those that want users and assistants by
# turns, as many do.
PLAIN = """\
{% for message in messages %}<{{ message.role }}>{{ message.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
STRICT = (
    """\
{% set talk = messages[1:] if messages[0].role == 'system' else messages %}\
{% for message in talk %}{% if message.role != ('assistant' if loop.index0 % 2 else 'user') %}\
{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"""
    + PLAIN
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)


@pytest.fixture(scope="module", params=in_full([PLAIN, STRICT]), ids=["plain", "strict"])
def told(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the model that calls, with a template that does not list tools."""
    entries = {"eos_token": "<|end|>", "chat_template": request.param}
    bundle = exported(
        tmp_path_factory.mktemp("told"),
        lambda folder: scripted_checkpoint(folder, SCRIPT, context=CONTEXT, entries=entries),
    )
    with serving(bundle, "--threads", "1", "--drafter", "lookup") as server:
        yield server


class TestDescribed:
    """Tools of a template that does not list them stand in the system message."""

    @pytest.mark.parametrize("stream", [False, True])
    def test_they_are_called(self, told: Server, stream: bool) -> None:
        content, calls, reason, shown = answered(told, stream, tools=TOOLS)
        assert (content.strip(), reason) == ("Let me look.", "tool_calls")
        assert [(name, json.loads(arguments)) for _, _, name, arguments in calls] == [
            ("weather", {"city": "Oslo", "days": 2})
        ]
        # The control: without them nothing is described, and nothing is called.
        _, calls, _, prompt = answered(told, stream)
        assert not calls
        assert prompt + 20 < shown

    @pytest.mark.parametrize("choice", FORCED)
    def test_a_call_is_forced(self, told: Server, choice: Any) -> None:
        needs_grammars()
        _, calls, reason, _ = answered(told, False, tools=TOOLS, tool_choice=choice, seed=1)
        assert (len(calls), reason) == (1, "tool_calls")

    def test_they_are_a_capability(self, told: Server) -> None:
        assert told.post("/api/show", {}).json()["capabilities"] == ["completion", "tools"]

    def test_a_conversation_goes_on(self, told: Server) -> None:
        client = told.client()
        given: Any = {"model": "tiny", "tools": TOOLS, "temperature": 0, "max_tokens": 60}
        first = client.chat.completions.create(messages=ASKED, **given)
        message = first.choices[0].message
        call = message.tool_calls[0]
        both = [call, call.model_copy(update={"id": "call_2"})]
        results: list[Any] = [
            {"role": "tool", "tool_call_id": one.id, "content": "rain"} for one in both
        ]
        talk = [*ASKED, message.model_copy(update={"tool_calls": both}), *results]
        second = client.chat.completions.create(messages=talk, **given)
        # Calls and results stand in the prompt.
        assert second.usage.prompt_tokens > first.usage.prompt_tokens + 20
        assert second.choices[0].message.tool_calls[0].function.name == "weather"


def test_what_is_described() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "yes"},
        {"role": "tool", "content": "a lot"},
    ]
    (system, user, assistant, results), _ = Form().shaped(talk, TOOLS)
    assert [one["role"] for one in (system, user, assistant, results)] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert system["content"].startswith("Be brief.\n\nYou can call:\n")
    for tool in TOOLS:
        assert json.dumps(tool["function"]) in system["content"]
    assert user == talk[1]
    assert assistant["content"] == (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    )
    assert results["content"] == "Result of the call:\nyes\n\nResult of the call:\na lot"
    # What it writes is what is found in the model's text; the control is another form.
    for text, count in ((assistant["content"], 1), ("<call>{}</call>", 0)):
        calls = Calls(Tools(TOOLS, frozenset(SCHEMAS)))
        calls.push(text)
        calls.finish()
        assert len(calls.found) == count


@pytest.mark.parametrize("template", in_full([NO_SYSTEM + PLAIN, None, "{{ 'Hello' }}"]))
def test_who_can_be_shown_tools(tmp_path: Path, template: str | None) -> None:
    """Without a system role they are described in the user's message."""
    bundle = exported(tmp_path, lambda folder: checkpoint(folder, 0, template))
    with serving(bundle, "--threads", "1", "--drafter", "lookup") as server:
        given: Any = {"model": "tiny", "messages": ASKED, "max_tokens": 4}
        create = server.client().chat.completions.create
        able = template == NO_SYSTEM + PLAIN
        shown = ["completion", "tools"] if able else ["completion"]
        assert server.post("/api/show", {}).json()["capabilities"] == shown
        if able:
            with_tools, without = create(**given, tools=TOOLS), create(**given)
            assert with_tools.usage.prompt_tokens > without.usage.prompt_tokens + 40
            return
        lost = "no chat template" if template is None else "messages[0].content: the model's chat"
        for choice in ("auto", "required"):
            with pytest.raises(openai.BadRequestError, match=re.escape(lost)):
                create(**given, tools=TOOLS, tool_choice=choice)
