"""Reads the parts of a chat: messages, tools, thinking, and the form of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgedec.grammar.llg import JSON_STYLE
from edgedec.grammar.spec import as_read
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused
from edgedec.text.chat import EFFORT, SWITCHES

_MOST, _MOST_DOCUMENTS = 4096, 64
_TEXTS = ("text", "input_text", "output_text")


def read(given: Any) -> list[dict[str, Any]]:
    """Return checked messages: content in parts is joined, and content that is null is empty."""
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


_MOST_TOOLS = 128


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request.

    Attributes:
        given: as the API writes them, for the template.
        grammar: of a text that must be a call; None if the model chooses.

    """

    given: list[dict[str, Any]]
    names: frozenset[str]
    grammar: str | None = None

    @classmethod
    def read(cls, body: Body) -> Tools | None:
        """Read ``tools`` and ``tool_choice``; None if there is nothing to call."""
        given, choice = body.rows("tools") or [], body.get("tool_choice")
        named = _named(choice)
        if len(given) > _MOST_TOOLS:
            raise refused("tools", f"at most {_MOST_TOOLS}", len(given))
        schemas = {_name(one): one["function"].get("parameters") for one in given}
        if len(schemas) < len(given):
            raise refused("tools", "functions of different names", [_name(one) for one in given])
        if named is not None and named not in schemas:
            raise refused("tool_choice", "a function of tools", choice)
        if choice == "required" and not given:
            raise refused("tool_choice", "tools to choose from", choice)
        if not given or choice == "none":
            return None
        names = frozenset(schemas)
        if named is not None:
            return cls(given, names, call_of({named: schemas[named]}))
        return cls(given, names, call_of(schemas) if choice == "required" else None)


def _named(choice: Any) -> str | None:
    """Return the function that must be called; None if no particular one must be."""
    if choice in (None, "none", "auto", "required"):
        return None
    if isinstance(choice, dict) and choice.get("type") == "function":
        return _name(choice)
    raise refused("tool_choice", "none, auto, required or a function's name", choice)


def call_of(schemas: Mapping[str, Any]) -> str:
    """Return a grammar, in Lark's notation, of a call of one of these functions.

    Each schema of arguments is a document of its own, so that its references stay its own.

    Args:
        schemas: of the arguments, by function; None is any object.

    Raises:
        ApiError, InputError: one is not a JSON schema.

    """
    rules = ["start: " + " | ".join(f"call_{place}" for place in range(len(schemas)))]
    for place, (name, schema) in enumerate(schemas.items()):
        if not isinstance(schema, dict | None):
            raise refused("tools", "parameters as a JSON schema", schema)
        begin = json.dumps('{"name": ' + json.dumps(name) + ', "arguments": ', ensure_ascii=False)
        rules.append(f'call_{place}: {begin} arguments_{place} "}}"')
        own = as_read({"type": "object", "x-guidance": JSON_STYLE, **(schema or {})})
        # Two colons and an equals sign would make it another notation.
        rules.append(f"arguments_{place}: %json " + own.replace("::=", ":\\u003a="))
    return "\n".join(rules) + "\n"


def _name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= 64:
        raise refused("tools", "functions with a name", tool)
    return name


# The values of the API; a template reads those that it knows.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_MOST_VARIABLES, _MOST_CHARS = 32, 8192
_RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")


def read_thinking(body: Body) -> tuple[dict[str, Any], bool | None]:
    """Return the template's variables, and whether the model is to think; None: as it does."""
    found = _variables(body.get("chat_template_kwargs"))
    think, effort = body.flag("enable_thinking"), body.text(EFFORT, _EFFORTS)
    if effort == "none":
        think = False if think is None else think
    elif effort is not None:
        found[EFFORT] = effort
    if think is None:
        think = next((found[name] for name in SWITCHES if isinstance(found.get(name), bool)), None)
    return found, think


def _variables(given: Any) -> dict[str, Any]:
    where = "chat_template_kwargs"
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MOST_VARIABLES:
        raise refused(where, f"an object of at most {_MOST_VARIABLES} values", given)
    for name, value in given.items():
        if name in _RESERVED or not name.isidentifier():
            raise ApiError(400, f"{where}: {name!r:.60}: not a variable of its own", param=where)
        if len(json.dumps(value)) > _MOST_CHARS:
            raise refused(f"{where}.{name}", f"at most {_MOST_CHARS} characters of JSON", value)
    return dict(given)


def read_format(asked: Body | None) -> dict[str, Any]:
    """Return the fields of ``GenerateOptions`` that a ``response_format`` asks for."""
    if asked is None:
        return {}
    kind = asked.text("type", ("text", "json_object", "json_schema"))
    part, schema = asked.part("json_schema"), asked.get("schema")  # llama.cpp's place for it
    asked.end()
    if kind == "json_object" and schema is None:
        return {"json_mode": True}
    if kind not in ("json_object", "json_schema"):
        return {}
    schema = schema if part is None else part.get("schema")
    if not isinstance(schema, dict):
        raise refused("response_format.json_schema.schema", "a JSON schema", schema)
    return {"json_schema": schema}
