"""Objects of a JSON schema are closed unless it says ``additionalProperties``.

The first rows are what llama.cpp's converter does (its pull request 8180), which has tests of them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")

from test_grammars import write
from tiny_tokenizers import byte_level

from edgedec.errors import InputError
from edgedec.grammar import spec
from edgedec.grammar.closing import closed
from edgedec.grammar.grammars import Grammars
from edgedec.grammar.spec import JSON_SCHEMA, Grammar, as_read
from edgedec.text.tokenizer import Tokenizer

N: dict[str, Any] = {"type": "integer"}
A, B = {"properties": {"a": N}}, {"properties": {"b": N}}
AB, A1, A1X, B1X = {"a": 1, "b": 2}, {"a": 1}, {"a": 1, "x": 1}, {"b": 1, "x": 1}
# A schema, values that it allows, and values with properties of another's invention.
SCHEMAS: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "object": ({"type": "object", **A}, [A1, {}], [A1X, {"x": 1}]),
    "says so": ({**A, "additionalProperties": True}, [A1, A1X], []),
    "says which": ({**A, "additionalProperties": N}, [A1X], [{"a": 1, "x": "y"}]),
    "says none": ({**A, "additionalProperties": False}, [A1], [A1X]),
    "no properties": ({"type": "object"}, [{}, A1X], []),
    "empty properties": ({"type": "object", "properties": {}}, [{}], [{"x": 1}]),
    "nested": (
        {"properties": {"o": {"type": "array", "items": A}}},
        [{"o": [A1]}],
        [{"o": [A1X]}, {"o": [], "x": 1}],
    ),
    "required alone": ({**A, "required": ["c"]}, [{"a": 1, "c": "s"}], [{"c": 1, "x": 1}]),
    "by reference": (
        {"properties": {"o": {"$ref": "#/$defs/a"}}, "$defs": {"a": A}},
        [{"o": A1}],
        [{"o": A1X}],
    ),
    "either": ({"anyOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}]},
               [A1, {"b": 1}], [A1X, B1X, AB]),
    "or null": ({"properties": {"o": {"anyOf": [A, {"type": "null"}]}}},
                [{"o": None}, {"o": A1}], [{"o": A1X}]),
    "all": ({"type": "object", "allOf": [A, B]}, [AB, {}], [{**AB, "x": 1}]),
    "all by reference": (
        {"allOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}}, [AB], [{**AB, "x": 1}],
    ),
    "both ways": (
        {
            "properties": {
                "own": {"$ref": "#/$defs/a"},
                "more": {"allOf": [{"$ref": "#/$defs/a"}, B]},
            },
            "$defs": {"a": {"type": "object", **A}},
        },
        [{"own": A1, "more": AB}],
        [{"own": AB}, {"own": A1, "more": {**AB, "x": 1}}],
    ),
    "one of them says so": ({"allOf": [{**A, "additionalProperties": True}, B]}, [AB, A1X], []),
    "beside": ({**A, "anyOf": [B, {"properties": {"c": N}}]}, [AB], [{"a": 1, "x": 1}]),
    "a tree": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "properties": {
                        "a": N, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    },
                },
            },
        },
        [{"a": 1, "next": {"a": 2, "next": None}}],
        [{"a": 1, "next": A1X}],
    ),
    "patterns": ({"patternProperties": {"^p": N}}, [{"p1": 1}], [{"p1": 1, "x": 1}]),
    "a property of that name": (
        {"properties": {"additionalProperties": N, "properties": A}},
        [{"additionalProperties": 1, "properties": A1}],
        [{"properties": A1X}],
    ),
    "a value, no schema": ({"properties": {"a": {"const": A}}}, [{"a": A}], [{"a": A, "x": 1}]),
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), {})


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, 341, (0,))


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_other_properties(name: str, tokenizer: Tokenizer, grammars: Grammars) -> None:
    schema, allowed, refused = SCHEMAS[name]

    def allows(grammar: Grammar, value: Any) -> bool:
        text = json.dumps(value).encode()
        return write(grammars.constraint(grammar), tokenizer, text, 341)

    made = spec.json_schema(schema)
    assert [one for one in allowed if not allows(made, one)] == []
    assert [one for one in refused if allows(made, one)] == []
    if name not in ("says which", "says none"):
        # The control: JSON Schema itself allows them all.
        as_given = Grammar(JSON_SCHEMA, json.dumps(schema))
        assert [one for one in [*allowed, *refused] if not allows(as_given, one)] == []


@pytest.mark.parametrize(
    "schema",
    [
        {**A, "if": A, "then": B},
        {"allOf": [{"$ref": "http://example.invalid/"}, A]},
        {"allOf": [{"$ref": "#/$defs/missing"}, A]},
        {**A, "minProperties": 2},
        {"properties": 3},
        {"properties": {"a": 1, "b": None}, "allOf": 3, "additionalProperties": {}},
    ],
)
def test_what_is_not_known_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema
    assert closed(A) != A  # the control


def test_a_schema_that_refers_to_itself_ends() -> None:
    for schema in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}, A]}, {"anyOf": [{"$ref": "#"}], **A}):
        assert closed(schema).keys() >= schema.keys()


def test_one_that_joins_too_much_is_refused() -> None:
    """Each of a thousand joins a thousand properties."""
    many = {"properties": {f"p{place}": {} for place in range(1000)}}
    joins = [{"allOf": [{"$ref": "#/$defs/many"}, A]} for _ in range(1000)]
    schema = {"$defs": {"many": many}, "prefixItems": joins}
    with pytest.raises(InputError, match="joins too many properties: say additionalProperties"):
        spec.json_schema(schema)
    few = {"$defs": {"many": many}, "prefixItems": joins[:10]}
    assert spec.json_schema(few).source.count('"additionalProperties": false') == 10


def test_a_value_keeps_what_a_schema_would_lose() -> None:
    given = {"const": {"format": "of a later day"}, "format": "of a later day"}
    assert json.loads(as_read(given)) == {"const": {"format": "of a later day"}}
