"""Schemas and expressions made to take long, to need much memory or to crash what compiles them."""

from __future__ import annotations

import json
import string
from typing import Any


def nested(depth: int) -> str:
    """Arrays in arrays; as text, since Python's own JSON is not that deep."""
    return '{"items": ' * depth + "{}" + "}" * depth


# Takes as much processor time as it gets.
ENDLESS: dict[str, Any] = {
    "allOf": [{"type": "string", "pattern": f".*{letter}.*"} for letter in string.ascii_lowercase]
}
# What no library should take, and a sentence of the refusal.
REFUSED: dict[str, tuple[str, str]] = {
    "endless": (json.dumps(ENDLESS), "too complex: it took more than 2 s of processor time"),
    "nested deeply": (nested(200), "recursion limit"),
    "nested too deeply for Python": (nested(20_000), "nested too deeply"),
    "overflows the stack": (
        json.dumps({"properties": {f"p{n}": {"pattern": f"^(a|b)*{n}$"} for n in range(3000)}}),
        "too complex",
    ),
    "larger than allowed": (json.dumps({"enum": ["x" * 300_000]}), "expected at most 256 KiB"),
    "a definition that is itself": ('{"$ref": "#"}', "cannot be used"),
    "definitions that double": (
        json.dumps(
            {
                "$ref": "#/$defs/a",
                "$defs": {
                    "a": {"allOf": [{"$ref": "#/$defs/b"}] * 2},
                    "b": {"allOf": [{"$ref": "#/$defs/a"}] * 2},
                },
            }
        ),
        "cannot be used",
    ),
}
# Large on paper; the library takes them, and a text may follow them.
TAKEN: dict[str, dict[str, Any]] = {
    "repeated in repetitions": {"type": "string", "pattern": "^((a{0,100}){0,100}){0,100}$"},
    "a thousand million letters": {"type": "string", "minLength": 10**9},
    "a million numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 10**6},
    "as many states as subsets": {"type": "string", "pattern": "^[ab]*a[ab]{200}c$"},
    "three hundred expressions": {
        "type": "object",
        "properties": {f"p{n}": {"pattern": f"^(a|b)*{n}$", "type": "string"} for n in range(300)},
    },
    "ten thousand words": {"enum": [f"w{n}" for n in range(10_000)]},
}
