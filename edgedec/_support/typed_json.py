"""Dataclasses to JSON and back, with a check of every type: what is read may be damaged."""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from edgedec.errors import PlacementError

T = TypeVar("T")
_UNIONS = (Union, types.UnionType)


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


def from_json(kind: type[T], raw: Any, where: str, error: type[PlacementError]) -> T:
    """The dataclass that ``to_json`` was given.

    Raises:
        PlacementError: of type ``error``, where a field is missing, unknown or of another type.

    """
    found: T = _Reader(error).read(kind, raw, where)
    return found


class _Reader:
    def __init__(self, error: type[PlacementError]) -> None:
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

    def _wrong(self, where: str, expected: str, raw: Any) -> PlacementError:
        return self._error(f"{where}: expected {expected}, found {reprlib.repr(raw)}")
