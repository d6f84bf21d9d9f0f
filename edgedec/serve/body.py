"""Reads the fields of a request's JSON body: checks each, and refuses those that it cannot use."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from edgedec._support.fields import one_line
from edgedec.serve import other_fields
from edgedec.serve.errors import ApiError, refused

# Python parses JSON without a pause, and each of these takes it a microsecond.
_MOST_PARTS, _MOST_TEXTS, MOST_VALUES = 20_000, 50_000, 100_000


def parsed(raw: bytes | bytearray, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Return a body as a JSON object.

    Raises:
        ApiError: it is something else, or holds too many values.

    """
    if not _is_plain(raw, most_values):
        raise ApiError(400, f"the body: expected JSON with at most {most_values} values")
    try:
        found = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body: expected JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body: expected a JSON object")
    return found


def _is_plain(raw: bytes | bytearray, most_values: int) -> bool:
    """Return whether JSON holds few enough objects, lists, texts and other values."""
    if len(raw) <= _MOST_PARTS:
        return True
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 2 * _MOST_TEXTS:
        return False
    outside = b"".join(bare.split(b'"')[::2])
    parts = outside.count(b"[") + outside.count(b"{")
    return parts <= _MOST_PARTS and outside.count(b",") <= most_values


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


class Body:
    """The fields of a JSON object; ``null`` counts as absent.

    Args:
        fields: the object.
        where: written before a field's name in errors.

    Attributes:
        ignored: names of fields without an effect, filled by ``end``.

    """

    def __init__(self, fields: dict[str, Any], where: str = "") -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._where = where
        self._known: set[str] = set()
        self._parts: dict[str, Body] = {}
        self.ignored: list[str] = []

    def get(self, name: str) -> Any:
        """Return a field as it is; None if it was left out."""
        self._known.add(name)
        return self._fields.get(name)

    def whole(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number; 40.0 is one, since JSON does not tell them apart."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refused(self._where + name, f"a whole number from {low} to {high}", value)
        return value

    def limit(self, name: str, most: int) -> int | None:
        """Return a number of tokens, of which -1, and Ollama's -2, are ``most``: no limit."""
        value = self.whole(name, -2, most)
        if value == 0:
            raise refused(
                self._where + name, f"a whole number from 1 to {most}, or -1 for no limit", value
            )
        return most if value is not None and value < 0 else value

    def number(self, name: str, low: float, high: float) -> float | None:
        """Return a number."""
        value = self.get(name)
        if value is None:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise refused(self._where + name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, name: str) -> bool | None:
        """Return true or false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise refused(self._where + name, "true or false", value)
        return value

    def text(self, name: str, choices: Sequence[str] = ()) -> str | None:
        """Return a text, one of these if there are any."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise refused(self._where + name, "a text", value)
        if choices and value not in choices:
            raise refused(self._where + name, f"one of {', '.join(choices)}", value)
        return value

    def part(self, name: str) -> Body | None:
        """Return an object in the object, the same one each time."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise refused(self._where + name, "an object", value)
        if name not in self._parts:
            self._parts[name] = Body(value, f"{self._where}{name}.")
            self._parts[name].ignored = self.ignored
        return self._parts[name]

    def rows(self, name: str) -> list[Any] | None:
        """Return a list."""
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise refused(self._where + name, "a list", value)
        return value

    def end(self, ignored: Collection[str] = ()) -> None:
        """Refuse fields that were not asked for, unless they leave the text as it is.

        Args:
            ignored: more fields that do, besides those of ``other_fields``.

        """
        for name, value in self._fields.items():
            if name in self._known:
                continue
            if name not in ignored and not other_fields.accepted(name, value):
                advice = other_fields.advice(name, self._known)
                full = self._where + one_line(name)
                raise ApiError(
                    400,
                    f"{full}: this server does not have this field: {advice}",
                    param=full,
                    code="unknown_parameter",
                )
            self.ignored.append(self._where + name)
