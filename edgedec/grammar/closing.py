"""Closes the objects of a JSON schema that do not say whether other properties may follow.

JSON Schema allows any more properties there, and a small model invents some. llama.cpp's converter,
and so Ollama and LM Studio, allow none unless ``additionalProperties`` says so, as here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgedec.errors import InputError

# Schemas by name, in a list or alone, or single ones, for values within an object or a list.
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_WITHIN = (
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
    "additionalProperties", "unevaluatedProperties",
)  # fmt: skip
# Schemas of the same value as the one that they stand in.
_JOINS = ("allOf", "anyOf", "oneOf")
# What says which other properties there may be, or makes it depend on the value.
_SAYS = (
    "additionalProperties", "unevaluatedProperties", "if", "dependentSchemas", "dependencies",
    "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_OWN = ("properties", "patternProperties")
# Properties that are looked at, those of schemas that are joined each time.
_MOST = 100_000


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema whose objects are closed unless it says ``additionalProperties``.

    Schemas that are joined (``allOf``, or others beside properties) are closed as one, with the
    properties of all. An object without any is any object.

    Raises:
        InputError: it joins too many properties.
        RecursionError: it is nested too deeply.

    """
    return _Closing(schema).closed()


@dataclass(slots=True)
class _Properties:
    """The properties that a schema and the schemas it joins name."""

    names: dict[str, bool] = field(default_factory=dict)
    patterns: dict[str, bool] = field(default_factory=dict)
    listed: bool = False
    fewest: int = 0


class _Closing:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._seen = root, 0
        # Those that a reference joins with others: they are closed where they are used.
        self._joined: set[int] = set()

    def closed(self) -> dict[str, Any]:
        for one in self._all(self._root):
            if _is_joint(one):
                self._join(one)
        found: dict[str, Any] = self._closed(self._root, joined=False)
        return found

    def _all(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """Yield a schema and those in it."""
        if isinstance(schema, list):
            for one in schema:
                yield from self._all(one)
        if not isinstance(schema, Mapping):
            return
        self._count()
        yield schema
        for name in _NAMED:
            if isinstance(given := schema.get(name), Mapping):
                yield from self._all(list(given.values()))
        for name in (*_WITHIN, *_JOINS):
            yield from self._all(schema.get(name))

    def _join(self, schema: Mapping[str, Any]) -> None:
        """Note the schemas that this one refers to, and those that they refer to."""
        for one in self._parts(schema):
            if id(one) not in self._joined:
                self._joined.add(id(one))
                self._join(one)

    def _parts(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the schemas of the same value."""
        self._count()
        given = [one for name in _JOINS if isinstance(schema.get(name), list)
                 for one in schema[name]]  # fmt: skip
        if (target := self._target(schema)) is not None:
            given.append(target)
        return [one for one in given if isinstance(one, Mapping)]

    def _target(self, schema: Mapping[str, Any]) -> Any:
        """Return what a schema refers to; None for nothing, or nothing in this one."""
        where = schema.get("$ref")
        if not isinstance(where, str) or not (where == "#" or where.startswith("#/")):
            return None
        found: Any = self._root
        for step in where.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def _closed(self, schema: Any, *, joined: bool) -> Any:
        """Return a closed schema; one that is joined with others is closed with them."""
        if isinstance(schema, list):
            return [self._closed(one, joined=joined) for one in schema]
        if not isinstance(schema, Mapping):
            return schema
        joined = joined or id(schema) in self._joined
        found, joint = dict(schema), _is_joint(schema)
        for name in _NAMED:
            if isinstance(given := schema.get(name), Mapping):
                found[name] = {key: self._closed(one, joined=False) for key, one in given.items()}
        for name in (*_WITHIN, *_JOINS):
            if name in schema:
                here = name in _JOINS and (joined or joint)
                found[name] = self._closed(schema[name], joined=here)
        return found if joined else {**found, **self._end(schema, found)}

    def _end(self, schema: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        """Return what closes an object's schema; nothing if it is to stay open."""
        target = self._target(schema)
        uses = target is not None and id(target) in self._joined
        if not (uses or _is_joint(schema) or any(name in schema for name in _OWN)):
            return {}
        said = self._properties(schema, _Properties(), set())
        if said is None or not said.listed or said.fewest > len(said.names):
            return {}
        end: dict[str, Any] = {"properties": {**said.names, **found.get("properties", {})}}
        if said.patterns:
            end["patternProperties"] = {**said.patterns, **found.get("patternProperties", {})}
        return {**end, "additionalProperties": False}

    def _properties(
        self, schema: Mapping[str, Any], found: _Properties, seen: set[int]
    ) -> _Properties | None:
        """Add what a schema says of properties; None if it is to stay as it is."""
        if id(schema) in seen:
            return found
        seen.add(id(schema))
        if any(name in schema for name in _SAYS):
            return None
        for name, into in zip(_OWN, (found.names, found.patterns), strict=True):
            given = schema.get(name, {})
            if not isinstance(given, Mapping):
                return None
            self._count(len(given))
            found.listed = found.listed or name in schema
            into.update(dict.fromkeys(given, True))
        required, fewest = schema.get("required", []), schema.get("minProperties", 0)
        if not isinstance(required, list) or not isinstance(fewest, int):
            return None
        found.names.update(dict.fromkeys((one for one in required if isinstance(one, str)), True))
        found.fewest = max(found.fewest, fewest)
        if "$ref" in schema and not isinstance(self._target(schema), Mapping | bool):
            return None
        parts = self._parts(schema)
        return found if all(self._properties(one, found, seen) for one in parts) else None

    def _count(self, more: int = 1) -> None:
        self._seen += more
        if self._seen > _MOST:
            raise InputError(
                "the JSON schema joins too many properties: say additionalProperties in it"
            )


def _is_joint(schema: Mapping[str, Any]) -> bool:
    """Return whether several schemas describe one object together."""
    alternatives = any(name in schema for name in ("anyOf", "oneOf", "$ref"))
    return "allOf" in schema or (alternatives and any(name in schema for name in _OWN))
