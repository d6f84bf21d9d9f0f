"""The exporter's facts of a program, checked against the program itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgedec._support.fields import Fields, one_line
from edgedec.coreml import Package
from edgedec.coreml.program import Function
from edgedec.coreml.types import Kind, TensorType
from edgedec.errors import BundleError

GRAPH_VERSION = 1
STATE = "kv"
_FORMS = ("slice", "blend")
_MOST = 1 << 24
_Types = Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class Rope:
    """What cosines and sines of a position are computed from.

    Attributes:
        frequencies: radians a position, for each pair of channels.
        magnitude: factor on both.

    """

    frequencies: tuple[float, ...]
    magnitude: float


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Facts of a program; see ``edgedec.export.coreml.options``.

    Attributes:
        form: ``slice`` or ``blend``.
        name, vocab_size, vocab_used, max_context, eos_ids, top_k: of the model.
        cache: shape of the cache, ``[2 * layers, kv_heads, slots, head_dim]``.
        rows: widths of passes, ascending from 1.
        read_rows, moved_rows: of the functions that read a prompt and move tokens.
        windows: of its layers; 0 is all tokens.
        ropes: rotary embeddings.
        positions: whether the functions take positions.

    """

    form: str
    name: str
    vocab_size: int
    vocab_used: int
    max_context: int
    eos_ids: tuple[int, ...]
    top_k: int
    cache: tuple[int, int, int, int]
    rows: tuple[int, ...]
    read_rows: int
    moved_rows: int
    windows: tuple[int, ...]
    ropes: tuple[Rope, ...]
    positions: bool

    @property
    def slots(self) -> int:
        """Return the tokens that the cache holds."""
        return self.cache[2]

    @classmethod
    def of(cls, package: Package) -> ProgramFacts:
        """Read the facts of a package, and check that its functions are as they say.

        Raises:
            BundleError: they are damaged, of another version, or not of this program.

        """
        where = str(package.folder)
        fields = Fields(package.facts, where)
        version = fields.size("graph_version")
        if version != GRAPH_VERSION:
            raise BundleError(
                f"{where}: program version {version}, this edgedec reads {GRAPH_VERSION}:"
                " upgrade edgedec or export it again"
            )
        facts = cls._read(fields)
        facts._check(package, fields)
        return facts

    @classmethod
    def _read(cls, fields: Fields) -> ProgramFacts:
        def count(name: str) -> int:
            found = fields.size(name)
            if not 1 <= found <= _MOST:
                raise fields.wrong(name, f"1 to {_MOST}")
            return found

        cache = (2 * count("layers"), count("kv_heads"), count("slots"), count("head_dim"))
        positions = fields.raw.get("positions")
        if not isinstance(positions, bool):
            raise fields.wrong("positions", "true or false")
        return cls(
            form=fields.choice("form", _FORMS),
            name=fields.text("name"),
            vocab_size=count("vocab_size"),
            vocab_used=count("vocab_used"),
            max_context=count("max_context"),
            eos_ids=_counts(fields, "eos_ids"),
            top_k=count("top_k"),
            cache=cache,
            rows=_counts(fields, "rows"),
            read_rows=count("read_rows"),
            moved_rows=count("moved_rows"),
            windows=_counts(fields, "windows"),
            ropes=tuple(_rope(fields, each) for each in _list(fields, "ropes")),
            positions=positions,
        )

    def _check(self, package: Package, fields: Fields) -> None:
        if list(self.rows) != sorted(set(self.rows)) or self.rows[:1] != (1,):
            raise fields.wrong("rows", "widths that ascend from 1")
        if self.max_context > self.slots:
            raise fields.wrong("max_context", f"at most the {self.slots} slots of the cache")
        if self.vocab_used > self.vocab_size or self.top_k > self.vocab_size:
            raise fields.wrong("vocab_used", f"at most {self.vocab_size}")
        if max(self.rows[-1], self.read_rows, self.moved_rows) > self.slots:
            raise fields.wrong("rows", f"at most the {self.slots} slots of the cache")
        if self.form == "slice":
            moved = {"source": _ints(self.moved_rows), "begin": _ints(1)}
            self._check_function(package, self.moved, moved, {})
        self._check_function(package, self.read, self._inputs(self.read_rows), {})
        for rows in self.rows:
            inputs, best = self._inputs(rows), (rows, self.top_k)
            top = {"top_0": _half(*best), "top_1": _ints(*best)}
            self._check_function(package, f"top_{rows}", inputs, top)
            logits = {"logits": _half(rows, self.vocab_size)}
            self._check_function(package, f"logits_{rows}", inputs, logits)

    def _inputs(self, rows: int) -> _Types:
        """Return what a session gives a function that computes ``rows`` tokens."""
        found = {"ids": _ints(rows)}
        if self.form == "slice":
            found |= {"begin": _ints(1), "positions": _ints(rows)}
        else:
            found |= {"place": _half(1, rows, self.slots), "keep": _half(1, self.slots, 1)}
            if self.positions:
                found["positions"] = _ints(rows)
            for index, rope in enumerate(self.ropes):
                angles = _half(rows, len(rope.frequencies))
                found |= {f"cos_{index}": angles, f"sin_{index}": angles}
        for window in self.windows:
            found[f"bias_{window}" if window else "bias"] = _half(1, rows, self.slots)
        return found

    def _check_function(self, package: Package, name: str, inputs: _Types, outputs: _Types) -> None:
        """Check that a function has this state and these inputs, and these outputs if any."""
        function = package.function(name)
        state = {STATE: _half(*self.cache)}
        checks = [("state", function.states, state), ("inputs", function.inputs, inputs)]
        if outputs:
            checks.append(("outputs", _outputs(function), outputs))
        for what, found, stated in checks:
            if found != stated:
                verb = "is" if what == "state" else "are"
                raise BundleError(
                    f"{package.folder}: the {what} of {name} {verb} {_listed(found) or 'missing'},"
                    f" its facts say {_listed(stated)}: damaged, export it again"
                )

    @property
    def read(self) -> str:
        """Return the function that reads a prompt."""
        return f"read_{self.read_rows}"

    @property
    def moved(self) -> str:
        """Return the function that moves tokens."""
        return f"move_{self.moved_rows}"


def _half(*shape: int) -> TensorType:
    return TensorType(Kind.FLOAT16, shape)


def _ints(*shape: int) -> TensorType:
    return TensorType(Kind.INT32, shape)


def _outputs(function: Function) -> _Types:
    types = {name: type for each in function.operations for name, type in each.outputs}
    return {name: types[name] for name in function.outputs if name in types}


def _listed(types: _Types) -> str:
    return one_line(", ".join(f"{name} {types[name]}" for name in sorted(types)))


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
    except OverflowError:  # a whole number beyond every float
        return False
