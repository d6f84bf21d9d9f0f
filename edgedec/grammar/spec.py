"""Grammars as the user gives them. They are untrusted, so their sizes are limited.

A JSON text is written on one line as Python's ``json.dumps`` writes it: ``{"a": 1, "b": [2, 3]}``.
If white space were free, a small model might write nothing else; a schema asks for another form
in ``x-guidance``, llguidance's own keyword: ``{"x-guidance": {"whitespace_flexible": true}}``.
Objects are closed unless the schema says otherwise (``closing``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.files import read_regular
from edgedec.errors import InputError
from edgedec.grammar.closing import closed

JSON_SCHEMA, REGEX, GRAMMAR = "JSON schema", "regular expression", "grammar"
# Larger ones are slow to compile: a list of 6,000 words takes a tenth of a second.
MAX_BYTES = {JSON_SCHEMA: 256 << 10, REGEX: 16 << 10, GRAMMAR: 64 << 10}
# Formats that llguidance follows; it refuses others.
_FORMATS = frozenset((
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri",
    "uuid",
))  # fmt: skip
# Keywords of a schema with names of the user's own, and with values that are no schemas.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("const", "default", "enum", "examples", "required")
# What JSON mode allows: any object.
_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A description of allowed texts, not compiled yet.

    Attributes:
        kind: ``JSON schema``, ``regular expression`` or ``grammar``, as messages call it.
        source: a JSON schema as JSON, a regular expression in Rust's syntax, or a grammar in Lark's
            or llama.cpp's (GBNF) notation.

    Raises:
        InputError: empty, too large, or not text.

    """

    kind: str
    source: str

    def __post_init__(self) -> None:
        try:
            size = len(self.source.encode("utf-8"))
        except UnicodeEncodeError:
            raise InputError(f"the {self.kind} is not valid UTF-8: save it as UTF-8") from None
        if not self.source.strip():
            raise InputError(f"the {self.kind} is empty: give one, or leave it out")
        most = MAX_BYTES[self.kind]
        if size > most:
            raise InputError(f"the {self.kind} has {size} bytes: expected at most {most >> 10} KiB")


def json_object() -> Grammar:
    """Return the grammar of JSON mode: any JSON object."""
    return json_schema(_ANY_OBJECT)


def json_schema(schema: object) -> Grammar:
    """Return the grammar of a JSON schema, given as JSON text or as the parsed object.

    Raises:
        InputError: it is neither an object nor true or false.

    """
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputError(f"the JSON schema is not JSON: {why}") from None
    if schema is False:
        raise InputError("the JSON schema is false: nothing satisfies it")
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise InputError(f"the JSON schema is {schema!r:.60}: expected an object")
    return Grammar(JSON_SCHEMA, as_read(schema))


def as_read(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as it is read here, as JSON: closed, without unknown formats.

    Raises:
        InputError: it cannot be written as JSON, or is too complex.

    """
    try:
        return json.dumps(closed(_without_unknown_formats(schema)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the JSON schema cannot be written as JSON: {error}") from None


def _without_unknown_formats(schema: Any) -> Any:
    """Return a JSON schema without formats that no grammar is known for.

    ``format`` is an annotation (JSON Schema 2020-12, Validation, 7.2.1): any text is allowed.
    """
    if isinstance(schema, list):
        return [_without_unknown_formats(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for name, value in schema.items():
        if name in _NAMED and isinstance(value, Mapping):
            found[name] = {key: _without_unknown_formats(one) for key, one in value.items()}
        elif name != "format" or not isinstance(value, str) or value in _FORMATS:
            found[name] = value if name in _VALUES else _without_unknown_formats(value)
    return found


def regex(pattern: str) -> Grammar:
    """Return the grammar of a regular expression, which the whole text matches."""
    return Grammar(REGEX, _text(REGEX, pattern))


def grammar(source: str) -> Grammar:
    """Return a grammar in Lark's notation, or in GBNF, which has ``::=``."""
    return Grammar(GRAMMAR, _text(GRAMMAR, source))


def read(path: Path) -> str:
    """Return a file's text; InputError if it is too large for any grammar, or not UTF-8."""
    most = max(MAX_BYTES.values())
    data = read_regular(path, most)
    if data is None:
        raise InputError(f"{path}: expected at most {most >> 10} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None


def _text(kind: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(f"the {kind} is {given!r:.60}: expected text")
    return given
