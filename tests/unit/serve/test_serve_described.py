"""Tools with chat templates that do not list them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import CONTEXT, Server, checkpoint, serving
from test_serve_tools import (
    ASKED,
    FORCED,
    SCHEMAS,
    SCRIPT,
    TOOLS,
    answered,
    exported,
    needs_grammars,
)
from tiny_checkpoints import scripted_checkpoint

from edgedec.serve.calls import Calls
from edgedec.serve.messages import Tools
from edgedec.text.template_form import Form

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


@pytest.fixture(scope="module", params=[PLAIN, STRICT], ids=["plain", "strict"])
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


@pytest.mark.parametrize("template", [NO_SYSTEM + PLAIN, None, "{{ 'Hello' }}"])
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
