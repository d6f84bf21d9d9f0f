"""Functions that a chat model may call, found in what it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgedec.grammar.llg import JSON_STYLE
from edgedec.grammar.spec import as_read
from edgedec.serve.body import Body
from edgedec.serve.errors import refused

_MOST = 128


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request.

    Attributes:
        given: as the API writes them, for the template.
        names: of the functions.
        grammar: of a text that must be a call; None if the model chooses.

    """

    given: list[dict[str, Any]]
    names: frozenset[str]
    grammar: str | None = None

    @classmethod
    def read(cls, body: Body) -> Tools | None:
        """Read ``tools`` and ``tool_choice``; None if there is nothing to call.

        Raises:
            ApiError: they are not as expected.

        """
        given, choice = body.rows("tools"), body.get("tool_choice")
        named = _named(choice)
        if len(given or ()) > _MOST:
            raise refused("tools", f"at most {_MOST}", len(given or ()))
        schemas = {_name(one): one["function"].get("parameters") for one in given or ()}
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
