"""Reads the messages of a conversation as the API writes them."""

from __future__ import annotations

import json
from typing import Any

from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused

_MOST, _MOST_DOCUMENTS = 4096, 64
_TEXTS = ("text", "input_text", "output_text")


def read(given: Any) -> list[dict[str, Any]]:
    """Return checked messages: content in parts is joined, and content that is null is empty.

    Raises:
        ApiError: they are not as expected.

    """
    if not isinstance(given, list) or not 0 < len(given) <= _MOST:
        raise ApiError(400, f"messages: expected a list of 1 to {_MOST} messages", param="messages")
    return [_message(one, f"messages[{place}]") for place, one in enumerate(given)]


def ending(body: Body) -> dict[str, bool | None]:
    """Return how a conversation ends, as ``ChatTemplate.render`` names it."""
    return {name: body.flag(name) for name in ("add_generation_prompt", "continue_final_message")}


def documents(body: Body) -> dict[str, Any]:
    """Return the chat template's variable for documents, if there are any."""
    given = body.rows("documents")
    for one in given or ():
        if not isinstance(one, dict) or not all(isinstance(part, str) for part in one.values()):
            raise refused("documents", "objects with texts", one)
    if given and len(given) > _MOST_DOCUMENTS:
        raise refused("documents", f"at most {_MOST_DOCUMENTS}", len(given))
    return {"documents": given} if given else {}


def _message(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ApiError(400, f"{where}: expected an object with a role", param=where)
    found = {name: value for name, value in given.items() if value is not None}
    if found["role"] == "developer":  # the API's newer name
        found["role"] = "system"
    found["content"] = _content(found.get("content"), where)
    calls = found.get("tool_calls")
    if calls is not None:
        found["tool_calls"] = [_call(one, where) for one in _rows(calls, where)]
    return found


def _content(given: Any, where: str) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    parts = []
    for part in _rows(given, where):
        if not isinstance(part, dict) or part.get("type") not in _TEXTS:
            raise refused(f"{where}.content", "text alone", part)
        text = part.get("text")
        if not isinstance(text, str):
            raise refused(f"{where}.content", "parts with a text", part)
        parts.append(text)
    return "".join(parts)


def _rows(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list) or len(given) > _MOST:
        raise refused(where, "a text or a list of parts", given)
    return given


def _call(given: Any, where: str) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise refused(f"{where}.tool_calls", "calls of functions by name", given)
    arguments = function.get("arguments")
    if arguments is None or arguments == "":  # of a function without parameters
        arguments = "{}"
    if isinstance(arguments, str):
        try:
            json.loads(arguments)
        except (ValueError, RecursionError):
            raise refused(f"{where}.tool_calls", "arguments as JSON", arguments) from None
    return {**given, "function": {**function, "arguments": arguments}}
