"""JSON from elsewhere, read field by field with a check of each type."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from edgedec.errors import BundleError

LARGEST_SIZE = 1 << 62


class Fields:
    """A JSON object whose fields are read with a check of their type."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw = raw
        self.where = where

    def has(self, name: str) -> bool:
        """Whether there is such a field, and it is not null."""
        return self.raw.get(name) is not None

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.raw.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def size(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self.raw.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST_SIZE:
            raise self.wrong(name, "a size")
        return value

    def object(self, name: str) -> Fields:
        """An object, to be read in the same way."""
        value = self.raw.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value, f"{self.where}: {name}")

    def objects(self, name: str) -> list[tuple[str, Fields]]:
        """An object of objects, by name."""
        inner = self.object(name)
        return [(key, inner.object(key)) for key in inner.raw]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return tuple(value)

    def wrong(self, name: str, expected: str) -> BundleError:
        """The error for a field that is not as expected."""
        found = one_line(reprlib.repr(self.raw[name])) if name in self.raw else "missing"
        return BundleError(
            f"{one_line(self.where)}: {one_line(name)} is {found}, expected {expected}"
        )


def one_line(text: str) -> str:
    """A name from a manifest, fit for a message of one line."""
    return printable(text[:200])


def printable(text: str) -> str:
    """A text from elsewhere without line ends and what else moves a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
