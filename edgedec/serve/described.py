"""Tools for chat templates that do not list them: described to the model in a system message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgedec.errors import EdgedecError, InputError
from edgedec.serve.errors import ApiError
from edgedec.serve.prompts import Prompts
from edgedec.serve.tools import CLOSE, OPEN, Tools

_RESULT = "Result of the call:"
_HOW = f"""\
To call one, write only its name and its arguments, as JSON, in this form:
{OPEN}
{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}
{CLOSE}
The result follows in a message that begins with "{_RESULT}" Call a function only where it helps."""


def encode(
    talk: Sequence[dict[str, Any]],
    tools: Tools | None,
    prompts: Prompts,
    variables: Mapping[str, Any],
) -> list[int]:
    """Return the tokens of a conversation in which the model may call tools.

    Args:
        talk: its messages.
        tools: what may be called; None for nothing.
        prompts: tokenises it.
        variables: of the chat template.

    Raises:
        ApiError: the model can be shown no tools; it says what else can be done.
        InputError: the template refuses the conversation.

    """
    template = prompts.template
    if tools is None or template is None or template.shows_tools:
        return prompts.encode_chat(talk, tools.given if tools else None, variables)
    try:
        text = prompts.render(described(talk, tools.given), None, variables)
    except InputError as error:
        raise ApiError(
            400,
            "tools: the model's chat template does not list them and takes no system message that"
            f" describes them ({error}): leave tools out; or describe them in a message of your own"
            " and send response_format; or serve a model whose template lists tools",
            param="tools",
        ) from None
    return prompts.encode_rendered(text)


def possible(prompts: Prompts) -> bool | None:
    """Return whether a model can be shown tools, by its template or in a system message.

    None if the template was stopped before that was known.
    """
    template = prompts.template
    if template is None or template.shows_tools:
        return template is not None
    try:
        prompts.render(described([{"role": "user", "content": "Hi"}], []))
    except InputError:  # the template's own answer, which stays the same
        return False
    except EdgedecError:
        return None
    return True


def described(
    talk: Sequence[dict[str, Any]], functions: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return a conversation in which tools, calls and their results are plain text.

    Args:
        talk: its messages.
        functions: the tools, as the API writes them.

    """
    listed = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in functions)
    begins = talk[0]["role"] == "system"
    parts = [*([talk[0]["content"]] if begins else []), f"You can call:\n{listed}", _HOW]
    found = [{"role": "system", "content": "\n\n".join(filter(None, parts))}]
    for message in talk[begins:]:
        role, content = message["role"], message["content"]
        if role == "tool":
            content = f"{_RESULT}\n{content}"
            if found[-1]["role"] == "user":  # templates want user and assistant by turns
                found[-1]["content"] += f"\n\n{content}"
                continue
            role = "user"
        calls = [_call(one["function"]) for one in message.get("tool_calls", ())]
        found.append({"role": role, "content": "\n".join([*filter(None, [content]), *calls])})
    return found


def _call(function: dict[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"{OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{CLOSE}"
