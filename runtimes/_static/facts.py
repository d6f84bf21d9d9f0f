"""Facts of a program of fixed widths, written by its exporter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgedec._support.fields import Fields

_MOST = 1 << 24
# Upper bound of the numbers in a cache: terabytes.
_MOST_NUMBERS = 1 << 40


@dataclass(frozen=True, slots=True)
class Rope:
    """Parameters of a rotary position embedding.

    Attributes:
        frequencies: radians per position, for each pair of channels.
        magnitude: factor on cosine and sine.

    """

    frequencies: tuple[float, ...]
    magnitude: float


@dataclass(frozen=True, slots=True)
class StaticShapeFacts:
    """Facts of a program.

    Attributes:
        cache: shape of the cache, ``[2 * layers, kv_heads, slots, head_dim]``.
        rows: widths of passes, ascending from 1.
        read_rows: width of the function that reads a prompt.
        windows: sizes of the layers' sliding windows; 0 is all tokens.
        positions: whether the model has learned position embeddings.

    """

    name: str
    vocab_size: int
    vocab_used: int
    max_context: int
    eos_ids: tuple[int, ...]
    top_k: int
    cache: tuple[int, int, int, int]
    rows: tuple[int, ...]
    read_rows: int
    windows: tuple[int, ...]
    ropes: tuple[Rope, ...]
    positions: bool

    @property
    def slots(self) -> int:
        """Return the tokens that the cache holds."""
        return self.cache[2]

    @property
    def read(self) -> str:
        """Return the function that reads a prompt."""
        return f"read_{self.read_rows}"

    @property
    def takes_positions(self) -> bool:
        """Return whether functions are given the positions of tokens."""
        return self.positions

    @property
    def takes_angles(self) -> bool:
        """Return whether functions are given the cosines and sines of rotations."""
        return True

    def check(self, fields: Fields) -> None:
        """Refuse facts that contradict each other."""
        if list(self.rows) != sorted(set(self.rows)) or self.rows[:1] != (1,):
            raise fields.wrong("rows", "widths that ascend from 1")
        if math.prod(self.cache) > _MOST_NUMBERS:
            raise fields.wrong("slots", f"a cache of at most {_MOST_NUMBERS} numbers")
        if self.max_context > self.slots:
            raise fields.wrong("max_context", f"at most the {self.slots} slots of the cache")
        if self.vocab_used > self.vocab_size or self.top_k > self.vocab_size:
            raise fields.wrong("vocab_used", f"at most {self.vocab_size}")
        if max(self.rows[-1], self.read_rows) > self.slots:
            raise fields.wrong("rows", f"at most the {self.slots} slots of the cache")


def stated(fields: Fields) -> dict[str, Any]:
    """Return what the fields say, as ``StaticShapeFacts`` takes it."""
    cache = (
        2 * count(fields, "layers"),
        *(count(fields, name) for name in ("kv_heads", "slots", "head_dim")),
    )
    positions = fields.raw.get("positions")
    if not isinstance(positions, bool):
        raise fields.wrong("positions", "true or false")
    return {
        "name": fields.text("name"),
        "vocab_size": count(fields, "vocab_size"),
        "vocab_used": count(fields, "vocab_used"),
        "max_context": count(fields, "max_context"),
        "eos_ids": _counts(fields, "eos_ids"),
        "top_k": count(fields, "top_k"),
        "cache": cache,
        "rows": _counts(fields, "rows"),
        "read_rows": count(fields, "read_rows"),
        "windows": _counts(fields, "windows"),
        "ropes": tuple(_rope(fields, each) for each in _list(fields, "ropes")),
        "positions": positions,
    }


def count(fields: Fields, name: str) -> int:
    """Return a positive count of bounded size, or raise BundleError."""
    found = fields.size(name)
    if not 1 <= found <= _MOST:
        raise fields.wrong(name, f"1 to {_MOST}")
    return found


def _list(fields: Fields, name: str) -> list[Any]:
    value = fields.raw.get(name)
    if not isinstance(value, list) or len(value) > _MOST:
        raise fields.wrong(name, "a list")
    return value


def _counts(fields: Fields, name: str) -> tuple[int, ...]:
    found = _list(fields, name)
    if not all(type(each) is int and 0 <= each <= _MOST for each in found):
        raise fields.wrong(name, "a list of counts")
    return tuple(found)


def _rope(fields: Fields, raw: Any) -> Rope:
    frequencies = raw.get("frequencies") if isinstance(raw, dict) else None
    magnitude = raw.get("magnitude") if isinstance(raw, dict) else None
    if not isinstance(frequencies, list) or not all(map(_finite, [*frequencies, magnitude])):
        raise fields.wrong("ropes", "frequencies and a magnitude for each")
    return Rope(tuple(float(each) for each in frequencies), float(magnitude or 0))


def _finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
