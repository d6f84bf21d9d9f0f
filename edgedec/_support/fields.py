"""Records from elsewhere, JSON or TOML, read with a check of every type.

``Fields`` reads an object field by field; ``from_json`` reads a dataclass that ``to_json`` wrote.
What is not as expected is an error of one line: where, what was found, what was expected.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from edgedec.errors import BundleError, EdgedecError

LARGEST_SIZE = 1 << 62
_LONGEST_LINE = 600
_UNIONS = (Union, types.UnionType)
T = TypeVar("T")
Self = TypeVar("Self", bound="Fields")


class Fields:
    """An object whose fields are read with a check of their type.

    Args:
        where: it stands, for messages.

    Attributes:
        error: what is raised.
        kind: what such an object is called.

    """

    error: type[EdgedecError] = BundleError
    kind = "an object"

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw = raw
        self.where = where

    def only(self, *names: str) -> None:
        """Refuse any other fields."""
        for name in self.raw:
            if name not in names:
                known = ", ".join(names)
                raise self.error(
                    f"{one_line(self.where)}: unknown field {one_line(name)}, expected {known}"
                )

    def has(self, name: str) -> bool:
        """True if there is such a field, and it is not null."""
        return self.raw.get(name) is not None

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.raw.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def line(self, name: str) -> str:
        """A text that is not empty, in one line."""
        value = self.raw.get(name)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self.wrong(name, "a text of one line")
        if len(value) > _LONGEST_LINE:
            raise self.wrong(name, f"a text of at most {_LONGEST_LINE} characters")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of these texts."""
        value = self.raw.get(name)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, "one of " + ", ".join(choices))
        return value

    def size(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self.raw.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST_SIZE:
            raise self.wrong(name, "a size")
        return value

    def sizes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 on."""
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(
            type(item) is int and item >= 0 for item in value
        ):
            raise self.wrong(name, "a list of sizes")
        return tuple(value)

    def object(self: Self, name: str) -> Self:
        """An object, to be read in the same way."""
        value = self.raw.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, self.kind)
        return type(self)(value, f"{self.where}: {one_line(name)}")

    def objects(self: Self, name: str) -> list[tuple[str, Self]]:
        inner = self.object(name)
        return [(key, inner.object(key)) for key in inner.raw]

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return tuple(value)

    def wrong(self, name: str, expected: str) -> EdgedecError:
        found = one_line(reprlib.repr(self.raw[name])) if name in self.raw else "missing"
        return self.error(
            f"{one_line(self.where)}: {one_line(name)} is {found}, expected {expected}"
        )


def json_object(data: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in a text; None if it is anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def to_json(value: Any) -> Any:
    """A dataclass, and what it holds, as JSON objects and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], raw: Any, where: str, error: type[EdgedecError]) -> T:
    """The dataclass that ``to_json`` was given.

    Raises:
        EdgedecError: of type ``error``, where a field is missing, unknown or of another type.

    """
    found: T = _Reader(error).read(kind, raw, where)
    return found


class _Reader:
    def __init__(self, error: type[EdgedecError]) -> None:
        self._error = error

    def read(self, kind: Any, raw: Any, where: str) -> Any:
        origin = get_origin(kind)
        if dataclasses.is_dataclass(kind):
            return self._object(kind, raw, where)
        if origin in _UNIONS:
            (some,) = (option for option in get_args(kind) if option is not types.NoneType)
            return None if raw is None else self.read(some, raw, where)
        if origin is tuple:
            return self._tuple(get_args(kind), raw, where)
        if origin is dict:
            if not isinstance(raw, dict):
                raise self._wrong(where, "an object", raw)
            of = get_args(kind)[1]
            return {str(key): self.read(of, item, f"{where}: {key}") for key, item in raw.items()}
        return self._plain(kind, raw, where)

    def _object(self, kind: Any, raw: Any, where: str) -> Any:
        hints = get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        if not isinstance(raw, dict) or set(raw) != set(names):
            raise self._wrong(where, f"an object with {', '.join(names)}", raw)
        return kind(
            **{name: self.read(hints[name], raw[name], f"{where}: {name}") for name in names}
        )

    def _tuple(self, of: tuple[Any, ...], raw: Any, where: str) -> Any:
        if not isinstance(raw, list):
            raise self._wrong(where, "a list", raw)
        if of[-1] is Ellipsis:
            of = (of[0],) * len(raw)
        if len(of) != len(raw):
            raise self._wrong(where, f"a list of {len(of)}", raw)
        return tuple(self.read(kind, item, where) for kind, item in zip(of, raw, strict=True))

    def _plain(self, kind: Any, raw: Any, where: str) -> Any:
        if kind is Any:
            return raw
        if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
            try:
                raw = float(raw)
            except OverflowError:
                raise self._wrong(where, "a finite float", raw) from None
        fits = isinstance(raw, kind) and not (kind is int and isinstance(raw, bool))
        if not fits or (isinstance(raw, float) and not math.isfinite(raw)):
            raise self._wrong(where, f"a finite {kind.__name__}", raw)
        return raw

    def _wrong(self, where: str, expected: str, raw: Any) -> EdgedecError:
        found = one_line(reprlib.repr(raw))
        return self._error(f"{printable(where)} is {found}, expected {expected}")


def one_line(text: str) -> str:
    """A text from elsewhere, fit for a message of one line."""
    return printable(text[:200])


def printable(text: str) -> str:
    """A text from elsewhere without line ends and what else moves a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
