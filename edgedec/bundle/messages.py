"""Writes and reads protobuf messages by a schema, as dictionaries by the names of their fields.

Messages that are read are untrusted: their number of fields and their depth are bounded, and what
is cut short, not UTF-8 or written as another type is ``Damaged``. Unknown fields are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgedec.bundle.protobuf import Damaged, marks, message

# A function of a large decoder has some 100,000.
MAX_FIELDS = 1 << 21
# The schema is recursive; a sound function has some 12 levels.
_MAX_DEPTH = 32
_WRAP = 1 << 64
_PACKED = ("ints", "floats", "bools")

Message = dict[str, Any]


# Messages by name, and their fields: a number and a type, which is ``int``, ``str``, ``bytes`` or
# another message; ``ints``, ``floats`` and ``bools`` are packed lists, ``*`` is a repeated field
# and ``%`` a map from text.
Schema = Mapping[str, Mapping[str, tuple[int, str]]]


class Messages:
    """Messages of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._by_number = {
            kind: {number: (name, inner) for name, (number, inner) in fields.items()}
            for kind, fields in schema.items()
        }

    def encode(self, kind: str, values: Mapping[str, Any]) -> bytes:
        """Return a message of this type; fields that are missing are left out."""
        fields = self._schema[kind]
        ordered = sorted(values.items(), key=lambda item: fields[item[0]][0])
        return message(
            *(
                (fields[name][0], data)
                for name, value in ordered
                for data in self._datas(fields[name][1], value)
            )
        )

    def _datas(self, kind: str, value: Any) -> list[int | str | bytes | memoryview]:
        """Return the values of a field in the file, one for each repetition."""
        if kind.startswith("*"):
            return [data for item in value for data in self._datas(kind[1:], item)]
        if kind.startswith("%"):
            return [
                message((1, key), *((2, data) for data in self._datas(kind[1:], item)))
                for key, item in value.items()
            ]
        if kind == "int":
            return [int(value) % _WRAP]
        if kind in ("str", "bytes"):
            return [value]
        if kind in _PACKED:
            return [_pack(kind, value)] if len(value) else []
        return [self.encode(kind, value)]

    def decode(self, kind: str, view: memoryview, most: int = MAX_FIELDS) -> Message:
        """Return a message's fields; repeated ones are lists, maps dictionaries.

        Args:
            kind: its name in the schema.
            most: fields of it and of those in it.

        Raises:
            Damaged: the bytes are not such a message, or it has too many fields or levels.

        """
        return _Decoder(self._by_number, most).decode(kind, view, 1)


def _pack(kind: str, values: Sequence[Any]) -> bytes:
    if kind == "floats":
        return np.asarray(values, "<f4").tobytes()
    # A message of fields without tags is a list of varints.
    return b"".join(message((1, int(value) % _WRAP))[1:] for value in values)


class _Decoder:
    """Decodes messages of one file; ``left`` fields may still follow."""

    def __init__(self, names: Mapping[str, Mapping[int, tuple[str, str]]], left: int) -> None:
        self._names, self.left = names, left

    def decode(self, kind: str, view: memoryview, depth: int) -> Message:
        if depth > _MAX_DEPTH:
            raise Damaged
        names = self._names[kind]
        found: Message = {}
        for number, begin, start, end in self._fields(view):
            name, inner = names.get(number, ("", ""))
            if not name:
                continue
            if inner == "int":
                found[name] = _signed(_int_field(view, begin, start, end))
            elif inner in _PACKED:
                found.setdefault(name, []).extend(self._packed(inner, view, begin, start, end))
            elif start is None:
                raise Damaged
            elif inner.startswith("*"):
                found.setdefault(name, []).append(self._value(inner[1:], view[start:end], depth))
            elif inner.startswith("%"):
                key, value = self._entry(inner[1:], view[start:end], depth)
                found.setdefault(name, {})[key] = value
            else:
                found[name] = self._value(inner, view[start:end], depth)
        return found

    def _fields(self, view: memoryview) -> list[tuple[int, int, int | None, int]]:
        found = marks(view, self.left)
        self._count(len(found))
        return found

    def _count(self, fields: int) -> None:
        self.left -= fields
        if self.left < 0:
            raise Damaged

    def _value(self, kind: str, view: memoryview, depth: int) -> Any:
        if kind == "bytes":
            return view
        return _text(view) if kind == "str" else self.decode(kind, view, depth + 1)

    def _entry(self, kind: str, view: memoryview, depth: int) -> tuple[str, Any]:
        parts: dict[int, memoryview] = {}
        for number, _, start, end in self._fields(view):
            if start is None:
                raise Damaged
            parts[number] = view[start:end]
        empty = memoryview(b"")
        return _text(parts.get(1, empty)), self._value(kind, parts.get(2, empty), depth)

    def _packed(
        self, kind: str, view: memoryview, begin: int, start: int | None, end: int
    ) -> list[Any]:
        """Return the numbers of a packed field, or the only one of a field without a length."""
        if kind == "floats":
            if start is None or (end - start) % 4:
                raise Damaged
            self._count((end - start) // 4)
            numbers: list[float] = np.frombuffer(view[start:end], "<f4").tolist()
            return numbers
        if start is None:
            return [_signed(_int_field(view, begin, start, end))]
        values = _varints(view[start:end], self.left)
        self._count(len(values))
        return values


def _int_field(view: memoryview, begin: int, start: int | None, end: int) -> int:
    """Return the number of a field, which is what follows its tag."""
    if start is not None:
        raise Damaged
    at = begin
    while view[at] > 127:  # the tag, which ``marks`` has read already
        at += 1
    if view[begin] & 7:  # not a varint
        raise Damaged
    (value,) = _varints(view[at + 1 : end], 1, signed=False)
    return value


def _varints(view: memoryview, most: int, *, signed: bool = True) -> list[int]:
    found: list[int] = []
    value = shift = 0
    for byte in view:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if value >= _WRAP or len(found) == most:
                raise Damaged
            found.append(_signed(value) if signed else value)
            value = shift = 0
        elif shift >= 70:
            raise Damaged
    if shift:
        raise Damaged
    return found


def _signed(value: int) -> int:
    return value - _WRAP if value >= _WRAP >> 1 else value


def _text(view: memoryview) -> str:
    try:
        return bytes(view).decode()
    except UnicodeDecodeError:
        raise Damaged from None
