"""Functions that a chat model may call, found in what it writes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgedec.grammar.llg import JSON_STYLE
from edgedec.serve.body import Body
from edgedec.serve.errors import refused
from edgedec.text.described import CLOSE, OPEN

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
        ApiError: one is not a JSON schema.

    """
    rules = ["start: " + " | ".join(f"call_{place}" for place in range(len(schemas)))]
    for place, (name, schema) in enumerate(schemas.items()):
        if not isinstance(schema, dict | None):
            raise refused("tools", "parameters as a JSON schema", schema)
        begin = json.dumps('{"name": ' + json.dumps(name) + ', "arguments": ', ensure_ascii=False)
        rules.append(f'call_{place}: {begin} arguments_{place} "}}"')
        schema = {"type": "object", "x-guidance": JSON_STYLE, **(schema or {})}
        # Two colons and an equals sign would make it another notation.
        rules.append(f"arguments_{place}: %json " + json.dumps(schema).replace("::=", ":\\u003a="))
    return "\n".join(rules) + "\n"


def _name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= 64:
        raise refused("tools", "functions with a name", tool)
    return name


class Calls:
    """Separates calls from the text around them, as it comes.

    Args:
        tools: what may be called.

    Attributes:
        found: the calls so far, as the API writes them.

    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held, self._shown = "", False
        self.found: list[dict[str, Any]] = []

    def push(self, text: str) -> str:
        """Take text; return what cannot be part of a call."""
        self._held += text
        shown = ""
        while (start := self._held.find(OPEN)) >= 0:
            end = self._held.find(CLOSE, start)
            if end < 0:
                return self._show(shown, start)
            after = end + len(CLOSE)
            if self._take(self._held[start + len(OPEN) : end]):
                shown = self._show(shown, start)
                self._held = self._held[after - start :]
            else:
                shown = self._show(shown, after)
        if not self._shown and not self.found and self._held.lstrip().startswith("{"):
            return shown  # may be an unmarked call
        return self._show(shown, len(self._held) - _begins(self._held))

    def _show(self, shown: str, count: int) -> str:
        """Return ``shown`` with this many more characters, which are no longer held back."""
        more, self._held = self._held[:count], self._held[count:]
        self._shown = self._shown or bool(more.strip())
        return shown + more

    def finish(self) -> str:
        """Return the rest of the text; a whole text that is a call's JSON is a call."""
        rest, self._held = self._held, ""
        inside = rest.strip().removeprefix(OPEN)
        return "" if inside and self._take(inside) else rest

    def _take(self, text: str) -> bool:
        try:
            call = json.loads(text)
        except (ValueError, RecursionError):
            return False
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or name not in self._tools.names:
            return False
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self.found.append(
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        )
        return True


def _begins(text: str) -> int:
    """Return how many of the last characters may begin a call."""
    for size in range(min(len(OPEN) - 1, len(text)), 0, -1):
        if OPEN.startswith(text[-size:]):
            return size
    return 0
