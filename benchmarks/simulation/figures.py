"""Figures with their sources, and their reader."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgedec._support.fields import Fields, one_line
from edgedec.errors import InputError

KINDS = ("datasheet", "measured", "derived", "estimate")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, or the range it lies in, with its source.

    Attributes:
        low, high: the range; equal if the number is known.
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
        """Middle of the range."""
        return (self.low + self.high) / 2

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of the range, or the single number."""
        return (self.low,) if self.low == self.high else (self.low, self.high)

    def fixed(self, value: float) -> Figure:
        """Return the same figure with this exact value."""
        return replace(self, low=value, high=value)


class CardFields(Fields):
    """A table of a card."""

    error = InputError
    kind = "a table"

    def tables(self, name: str) -> list[tuple[str, CardFields]]:
        """Return a table of tables, by name."""
        for key in self.object(name).raw:
            if not key.isprintable() or not key.strip() or len(key) > 40:
                raise self.wrong(name, "tables with short names")
        return self.objects(name)

    def figure(self, name: str, *, least: float, most: float) -> Figure:
        """Return a figure with its source.

        Raises:
            InputError: it is not a number or range from ``least`` to ``most``, or an entry required
                for its kind is missing.

        """
        reader = self.object(name)
        reader.only("value", "range", "kind", "source", "url", "note")
        low, high = reader._range(least, most)
        kind = reader.choice("kind", KINDS)
        url = reader.line("url") if reader.has("url") else ""
        if kind in ("datasheet", "measured") and not url:
            raise reader.wrong("url", f"where a figure that is {kind!r} can be read")
        if url and not url.startswith("https://"):
            raise reader.wrong("url", "an address that begins with https://")
        note = reader.line("note") if reader.has("note") else ""
        if kind in ("derived", "estimate") and not note:
            raise reader.wrong("note", f"how a figure that is {kind!r} came about")
        if kind == "estimate" and low == high:
            raise reader.wrong("range", "a range: nobody estimates exactly")
        return Figure(low, high, kind, reader.line("source"), url, note)

    def _range(self, least: float, most: float) -> tuple[float, float]:
        if self.has("value") == self.has("range"):
            raise InputError(
                f"{one_line(self.where)}: expected a value or a range, and one of them only"
            )
        if self.has("value"):
            value = self._number("value", self.raw["value"], least, most)
            return value, value
        ends = self.raw["range"]
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
