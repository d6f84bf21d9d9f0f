"""Reads and writes messages of the protobuf wire format, without a schema.

A message is its fields, one after the other, each a tag (its number and how it is written) and a
value. The numbers of ONNX's messages are in onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator


class Damaged(Exception):
    """The bytes are not a protobuf message."""


class TooMany(Damaged):
    """A message has more fields than are read."""


# Bound on the fields of one message, which are listed in memory.
_MOST = 1 << 19


def fields(view: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """Yield the fields of a message: their number, and their bytes if they have a length."""
    for number, _, start, end in marks(view):
        yield number, None if start is None else view[start:end]


def spans(view: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """Yield the fields of a message: number, bytes if they have a length, and all with the tag."""
    for number, begin, start, end in marks(view):
        yield number, None if start is None else view[start:end], view[begin:end]


def marks(view: memoryview, most: int = _MOST) -> list[tuple[int, int, int | None, int]]:
    """Return a message's fields: number, where it begins, where its bytes begin, where it ends.

    The third is None where a field has no length. The fields of a graph are thousands, and read
    whenever a model is opened: this slices none of them, and is called once for each message.

    Raises:
        TooMany: there are more than ``most``.
        Damaged: the bytes are not a message.

    """
    found: list[tuple[int, int, int | None, int]] = []
    at, size = 0, len(view)
    while at < size:
        begin, tag, at = at, view[at], at + 1
        if tag > 127:
            tag, at = _varint(view, begin)
        # ONNX Runtime keeps the lower 32 bits, so a number that is unknown here could be a field
        # there.
        if not 8 <= tag < 1 << 32:
            raise Damaged
        wire, start = tag & 7, None
        if wire == 2:
            length, start = (view[at], at + 1) if at < size else (128, at)
            if length > 127:
                length, start = _varint(view, at)
            at = start + length
        elif wire == 0:
            at = at + 1 if at < size and view[at] < 128 else _varint(view, at)[1]
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise Damaged
        if at > size:
            raise Damaged
        if len(found) == most:
            raise TooMany
        found.append((tag >> 3, begin, start, at))
    return found


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(at, min(at + 10, len(view))):
        byte = view[index]
        if byte < 128 and not shift:  # most by far
            return byte, index + 1
        at = index + 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
        shift += 7
    raise Damaged


def message(*fields: tuple[int, int | str | bytes | memoryview]) -> bytes:
    """Return a message with these fields, each a number and a value."""
    parts: list[bytes | memoryview] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_written(number << 3), _written(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_written(number << 3 | 2), _written(len(data)), data]
    return b"".join(parts)


def _written(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
