"""A figure with its source, and a card's tables read with a check of every field."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgedec.errors import InputError

KINDS = ("datasheet", "measured", "derived", "estimate")
_LONGEST = 600


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, or the range it lies in, and who says so.

    Attributes:
        low, high: the range; equal where the number is known.
        kind: ``datasheet``, ``measured``, ``derived`` from other figures, or ``estimate``.
        source: title of the data sheet, measurement or paper.
        url: of it.
        note: how it was derived, or why it is thought to be so.

    """

    low: float
    high: float
    kind: str
    source: str
    url: str = ""
    note: str = ""

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of the range, or the one number."""
        return (self.low,) if self.low == self.high else (self.low, self.high)

    def fixed(self, value: float) -> Figure:
        """The same figure taken to be this number."""
        return replace(self, low=value, high=value)


class CardReader:
    """A table of a card.

    Args:
        raw: what the file says.
        where: it says so, for messages.

    """

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self._raw = raw
        self._where = where

    def only(self, *names: str) -> None:
        """Nothing but these fields may be there."""
        for name in self._raw:
            if name not in names:
                raise InputError(
                    f"{self._where}: unknown field {short(name)}, expected {', '.join(names)}"
                )

    def has(self, name: str) -> bool:
        """True if there is such a field."""
        return name in self._raw

    def text(self, name: str) -> str:
        """A text that is not empty, in one line."""
        value = self._raw.get(name)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self.wrong(name, "a text of one line")
        if len(value) > _LONGEST:
            raise self.wrong(name, f"a text of at most {_LONGEST} characters")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of these texts."""
        value = self._raw.get(name)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, "one of " + ", ".join(choices))
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self._raw.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return value

    def table(self, name: str) -> CardReader:
        """A table, to be read in the same way."""
        value = self._raw.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "a table")
        return CardReader(value, f"{self._where}: {short(name)}")

    def tables(self, name: str, *, optional: bool = False) -> list[tuple[str, CardReader]]:
        """A table of tables, by name."""
        if optional and name not in self._raw:
            return []
        inner = self.table(name)
        for key in inner._raw:
            if not key.isprintable() or not key.strip() or len(key) > 40:
                raise self.wrong(name, "tables with short names")
        return [(key, inner.table(key)) for key in inner._raw]

    def figure(self, name: str, *, least: float, most: float) -> Figure:
        """A figure with its source.

        Raises:
            InputError: it is not a number or range from ``least`` to ``most``, or what must be
                said of a figure of its kind is not there.

        """
        reader = self.table(name)
        reader.only("value", "range", "kind", "source", "url", "note")
        low, high = reader._range(least, most)
        kind = reader.choice("kind", KINDS)
        url = reader.text("url") if reader.has("url") else ""
        if kind in ("datasheet", "measured") and not url:
            raise reader.wrong("url", f"where a figure that is {kind!r} can be read")
        if url and not url.startswith("https://"):
            raise reader.wrong("url", "an address that begins with https://")
        note = reader.text("note") if reader.has("note") else ""
        if kind in ("derived", "estimate") and not note:
            raise reader.wrong("note", f"how a figure that is {kind!r} came about")
        if kind == "estimate" and low == high:
            raise reader.wrong("range", "a range: nobody estimates exactly")
        return Figure(low, high, kind, reader.text("source"), url, note)

    def _range(self, least: float, most: float) -> tuple[float, float]:
        if self.has("value") == self.has("range"):
            raise InputError(f"{self._where}: expected a value or a range, and one of them only")
        if self.has("value"):
            value = self._number("value", self._raw["value"], least, most)
            return value, value
        ends = self._raw["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise self.wrong("range", "two numbers")
        low, high = (self._number("range", end, least, most) for end in ends)
        if low >= high:
            raise self.wrong("range", "the smaller number first")
        return low, high

    def _number(self, name: str, value: object, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "a number")
        try:
            number = float(value)
        except OverflowError:
            raise self.wrong(name, "a smaller number") from None
        if not least <= number <= most:
            raise self.wrong(name, f"{least:g} to {most:g}")
        return number

    def wrong(self, name: str, expected: str) -> InputError:
        """The error for a field that is not as expected."""
        found = short(reprlib.repr(self._raw[name])) if name in self._raw else "missing"
        return InputError(f"{self._where}: {short(name)} is {found}, expected {expected}")


def short(text: str) -> str:
    """A text from a file, or its name, fit for a message of one line."""
    return "".join(c if c.isprintable() else "?" for c in text[:80])
