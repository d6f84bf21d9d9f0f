"""The exporter's facts of a program, checked against the program itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgedec._support.fields import Fields, one_line
from edgedec.coreml import Package
from edgedec.coreml.program import Function
from edgedec.coreml.types import Kind, TensorType
from edgedec.errors import BundleError
from edgedec.runtimes._static.facts import StaticShapeFacts, count, stated

GRAPH_VERSION = 1
STATE = "kv"
_FORMS = ("slice", "blend")
_Types = Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class ProgramFacts(StaticShapeFacts):
    """Facts of a program; see ``edgedec.export.coreml.options``.

    Attributes:
        form: ``slice`` or ``blend``.
        moved_rows: of the function that moves tokens.

    """

    form: str
    moved_rows: int

    @property
    def takes_positions(self) -> bool:
        return self.positions or self.form == "slice"

    @property
    def takes_angles(self) -> bool:
        return self.form == "blend"

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
        form, moved_rows = fields.choice("form", _FORMS), count(fields, "moved_rows")
        facts = cls(**stated(fields), form=form, moved_rows=moved_rows)
        facts.check(fields)
        facts._check_functions(package, fields)
        return facts

    def _check_functions(self, package: Package, fields: Fields) -> None:
        if self.moved_rows > self.slots:
            raise fields.wrong("moved_rows", f"at most the {self.slots} slots of the cache")
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
        for what, found, listed in checks:
            if found != listed:
                verb = "is" if what == "state" else "are"
                raise BundleError(
                    f"{package.folder}: the {what} of {name} {verb} {_listed(found) or 'missing'},"
                    f" its facts say {_listed(listed)}: damaged, export it again"
                )

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
