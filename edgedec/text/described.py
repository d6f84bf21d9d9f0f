"""Tools, calls and results as plain text, for chat templates that do not carry them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# The format in which Hermes, Qwen and many others are trained to write a call.
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_RESULT = "Result of the call:"
_HOW = f"""\
To call one, write only its name and its arguments, as JSON, in this form:
{OPEN}
{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}
{CLOSE}
The result follows in a message that begins with "{_RESULT}" Call a function only where it helps."""
Talk = Sequence[dict[str, Any]]


def with_tools(talk: Talk, tools: Talk) -> list[dict[str, Any]]:
    """Return a conversation whose system message describes the tools, as the API writes them."""
    listed = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in tools)
    begins = talk[0]["role"] == "system"
    parts = [*([talk[0]["content"]] if begins else []), f"You can call:\n{listed}", _HOW]
    return [{"role": "system", "content": "\n\n".join(filter(None, parts))}, *talk[begins:]]


def with_spoken_calls(talk: Talk) -> list[dict[str, Any]]:
    """Return a conversation in which calls are part of the assistant's text."""
    return [
        {**_bare(one), "content": "\n".join(filter(None, [one["content"], *_calls(one)]))}
        for one in talk
    ]


def with_spoken_results(talk: Talk) -> list[dict[str, Any]]:
    """Return a conversation in which results are the user's; those in a row are one message."""
    found: list[dict[str, Any]] = []
    for message in talk:
        if message["role"] != "tool":
            found.append(message)
            continue
        content = f"{_RESULT}\n{message['content']}"
        if found and found[-1]["role"] == "user":  # templates want user and assistant by turns
            found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n\n{content}"}
        else:
            found.append({"role": "user", "content": content})
    return found


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "tool_calls"}


def _calls(message: dict[str, Any]) -> list[str]:
    return [_call(one["function"]) for one in message.get("tool_calls", ())]


def _call(function: dict[str, Any]) -> str:
    call = {"name": function["name"], "arguments": as_object(function["arguments"])}
    return f"{OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{CLOSE}"


def as_object(arguments: Any) -> Any:
    """Return a call's arguments, text or not, as what their JSON says; other text as it is."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
