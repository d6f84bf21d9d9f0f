"""Computes a function of a package with numpy, from the saved file alone.

Exact mode keeps values in float32, so that what differs from another decoder is an error of the
program; otherwise each value that the program declares as fp16 is rounded to it once. How a device
rounds inside an operation is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.coreml.constants import Constants, Large, rounded, whole
from edgedec.coreml.operations import MOST_NUMBERS, RULES, Arguments, Rule, Undefined, slices
from edgedec.coreml.program import Function, Operation
from edgedec.coreml.types import Array, Inline, Kind, TensorType
from edgedec.errors import BundleError

State = dict[str, Array]


@dataclass(slots=True)
class Step:
    """An operation, ready to be computed.

    Attributes:
        arguments: its constant inputs, by parameter.
        names: its other inputs, by parameter; several where the parameter is a list.
        dead: values that nothing reads after it.
        written: of ``slice_update``, the state that its result is written to before anything else
            reads or writes that state; empty if there is none.

    """

    operation: Operation
    rule: Rule
    arguments: dict[str, Any]
    names: dict[str, tuple[str, ...]]
    dead: tuple[str, ...] = ()
    written: str = ""


def find_last_uses(steps: Sequence[Step], outputs: Sequence[str]) -> None:
    """Note after which step nothing reads a value, so that it can be dropped or overwritten."""
    kept, made = set(outputs), set[str]()
    for step in steps:
        made.update(name for name, _ in step.operation.outputs)
    for step in reversed(steps):
        read = {name for kind, names in step.names.items() if kind != "input" for name in names}
        read.update(name for name, _ in step.operation.outputs)
        step.dead = tuple(sorted((read & made) - kept))
        kept |= read


def find_writes(steps: Sequence[Step]) -> None:
    """Note which updates go straight back into the state that they were read from."""
    following: dict[str, str] = {}  # by state, what the next operation on it writes
    for step in reversed(steps):
        if step.operation.type == "write_state":
            following[step.names["input"][0]] = step.names["data"][0]
        elif step.operation.type == "read_state":
            following[step.names["input"][0]] = ""
        elif step.operation.type == "slice_update":
            result = step.operation.outputs[0][0]
            step.written = next((name for name, data in following.items() if data == result), "")


def updated_part(
    step: Step, arguments: Arguments, values: Mapping[str, Any], state: State
) -> Array:
    """Return ``x`` with a part of it replaced; in its own memory where nothing else reads that."""
    x, update = arguments["x"], arguments["update"]
    where = slices(x, arguments)
    if x[where].shape != update.shape:
        raise Undefined(f"an update of {update.shape} for {x[where].shape}")
    own = step.names.get("x", ("",))[0]
    live = [
        value
        for name, value in values.items()
        if name != own and isinstance(value, np.ndarray) and name not in step.dead
    ]
    shared = any(np.may_share_memory(x[where], value) for value in live)
    kept = [value for name, value in state.items() if name != step.written]
    if own not in step.dead or shared or any(np.may_share_memory(x, each) for each in kept):
        x = x.copy()
    x[where] = update
    updated: Array = x
    return updated


_CONSTANT = "constexpr_"
_SMALL_NUMBERS = 1 << 12


class Interpreter:
    """One function of a package; calls may run at once in several threads.

    Args:
        taps: values that are returned besides its outputs.

    Raises:
        BundleError: it uses operations, parameters or types that a decoder's program does not, or
            values that no operation before computes.

    """

    def __init__(self, constants: Constants, name: str, taps: Sequence[str] = ()) -> None:
        self.function = constants.package.function(name)
        self._where = f"{constants.package.folder}: function {one_line(name)}"
        self._constants, self._exact = constants, constants.exact
        self._values: dict[str, Any] = {}
        self._types: dict[str, TensorType] = dict(self.function.inputs)
        self._steps: list[Step] = []
        for operation in self.function.operations:
            try:
                self._add(operation)
            except (Undefined, KeyError, ValueError, IndexError, TypeError) as error:
                raise self._wrong(operation, error) from None
        self._outputs = (*self.function.outputs, *taps)
        for output in self._outputs:
            if output not in self._types:
                named = one_line(output)
                raise BundleError(f"{self._where}: no output {named}: damaged, export it again")
        find_last_uses(self._steps, self._outputs)
        find_writes(self._steps)

    @property
    def operations(self) -> Counter[str]:
        """Return how often it computes each operation, other than constants."""
        return Counter(step.operation.type for step in self._steps)

    def run(
        self,
        feeds: Mapping[str, Array],
        state: State,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Array]:
        """Compute the function.

        Args:
            feeds: its inputs, as it declares them; those of fp16 may be float32.
            state: its states by name, float32, which are changed; see ``empty_state``.
            check: called before each operation; what it raises ends the call.

        Returns:
            The outputs by name; floating-point numbers as float32.

        Raises:
            BundleError: an operation was given what it does not allow.

        """
        values = dict(self._values)
        for name, type in self.function.inputs.items():
            if feeds[name].shape != type.shape:
                raise ValueError(f"{name}: expected {type}, got {feeds[name].shape}")
            values[name] = self._typed(whole(feeds[name]), type, rounds=True)
        with np.errstate(all="ignore"):  # infinities are results like others
            for step in self._steps:
                check()
                try:
                    self._compute(step, values, state)
                except (Undefined, ValueError, IndexError, KeyError, TypeError) as error:
                    raise self._wrong(step.operation, error) from None
                for name in step.dead:
                    del values[name]
        return {name: values[name] for name in self._outputs}

    def _compute(self, step: Step, values: dict[str, Any], state: State) -> None:
        operation, rule = step.operation, step.rule
        arguments = {
            name: self._read(value) if isinstance(value, Large) else value
            for name, value in step.arguments.items()
        }
        for name, given in step.names.items():
            of = state if name == "input" else values
            found = [of[each] for each in given]
            found = [self._read(each) if isinstance(each, Large) else each for each in found]
            arguments[name] = found if name == "values" else found[0]
        if operation.type == "write_state":
            (target,) = step.names["input"]
            state[target] = _shaped(arguments["data"], arguments["input"].shape)
            return
        if rule.shape is not None:
            _check_shape(rule.shape(arguments), operation.outputs[0][1])
        if operation.type == "slice_update":
            results: Any = updated_part(step, arguments, values, state)
        else:
            results = rule.compute(arguments)
        results = results if isinstance(results, tuple) else (results,)
        for (name, type), result in zip(operation.outputs, results, strict=True):
            values[name] = self._typed(_shaped(result, type.shape), type, rounds=rule.rounds)

    def _typed(self, value: Array, type: TensorType, *, rounds: bool) -> Array:
        if type.kind is Kind.FLOAT16 and rounds:
            return rounded(value, exact=self._exact)
        return value

    def _add(self, operation: Operation) -> None:
        """Check an operation, and prepare it."""
        for name, type in operation.outputs:
            if name in self._types or name in self.function.states:
                raise Undefined(f"a second value {name}")
            if type.count > MOST_NUMBERS and not operation.type.startswith(("const", "read")):
                raise Undefined(f"a value of {type.count} numbers")
        if operation.type == "const" or operation.type.startswith(_CONSTANT):
            ((name, type),) = operation.outputs
            self._values[name] = self._constant(operation, type)
        else:
            self._steps.append(self._step(operation))
        self._types.update(operation.outputs)
        if self._steps and self._steps[-1].operation is operation:
            self._check_types(operation, self._steps[-1].rule)

    def _step(self, operation: Operation) -> Step:
        rule = RULES.get(operation.type)
        if rule is None:
            raise Undefined("it is not an operation of a decoder's program")
        self._check_parameters(operation, rule)
        step = Step(operation, rule, {}, {})
        for parameter, operands in operation.inputs.items():
            names = tuple(each for each in operands if isinstance(each, str))
            if len(names) != len(operands) or (len(names) != 1 and parameter != "values"):
                raise Undefined(f"{parameter} is not a value")
            known = self.function.states if parameter == "input" else self._types
            for name in names:
                if name not in known:
                    raise Undefined(f"{name} is not known")
            if parameter != "values" and names[0] in self._values:
                step.arguments[parameter] = self._values[names[0]]
            else:
                step.names[parameter] = names
        return step

    def _constant(self, operation: Operation, type: TensorType) -> Array | str | Large:
        """Return a constant; a large one is only checked, and read when it is used."""
        stated = operation.value
        if stated is not None and stated.type != type:
            raise Undefined(f"a constant of {stated.type}, declared as {type}")
        if isinstance(stated, Inline):
            return self._constants.value(stated)
        if type.count > _SMALL_NUMBERS:
            return Large(operation, type)
        value = self._constants.of(operation)
        return value if isinstance(value, str) else _shaped(value, type.shape)

    def _read(self, value: Large) -> Array:
        found = self._constants.of(value.operation)
        assert not isinstance(found, str)
        return _shaped(found, value.type.shape)

    @staticmethod
    def _check_parameters(operation: Operation, rule: Rule) -> None:
        given = set(operation.inputs)
        missing = set(rule.required) - given
        others = given - set(rule.required) - set(rule.optional)
        if missing or others:
            raise Undefined(f"parameters {', '.join(sorted(missing | others))}")

    def _check_types(self, operation: Operation, rule: Rule) -> None:
        """Check that data types agree, which the arrays here do not show."""
        for parameter in rule.alike:
            for name in operation.inputs.get(parameter, ()):
                assert isinstance(name, str)
                kind, declared = self._types[name].kind, operation.outputs[0][1].kind
                if kind is not declared:
                    raise Undefined(f"{parameter} is {kind.name}, its result {declared.name}")
        if operation.type == "cast":
            self._check_cast(operation)
        elif operation.type in ("read_state", "write_state"):
            (target,) = operation.inputs["input"]
            value = operation.outputs[0][0] if operation.outputs else operation.inputs["data"][0]
            assert isinstance(target, str)
            assert isinstance(value, str)
            if self._types[value] != self.function.states[target]:
                raise Undefined(f"{self._types[value]} for a state {self.function.states[target]}")

    def _check_cast(self, operation: Operation) -> None:
        (dtype,) = operation.inputs["dtype"]
        names = {Kind.FLOAT16: "fp16", Kind.FLOAT32: "fp32"}
        declared = operation.outputs[0][1].kind
        assert isinstance(dtype, str)
        if self._values.get(dtype) != names.get(declared, declared.name.lower()):
            raise Undefined(f"a cast to {self._values.get(dtype)}, declared as {declared.name}")

    def _wrong(self, operation: Operation, error: Exception) -> BundleError:
        named = operation.outputs[0][0] if operation.outputs else "-"
        what = f"{one_line(operation.type)} {one_line(named)}: {one_line(str(error))}"
        return BundleError(f"{self._where}: {what}: damaged, export it again")


def empty_state(function: Function) -> State:
    """Return a function's states, empty."""
    return {name: np.zeros(type.shape, np.float32) for name, type in function.states.items()}


def _shaped(value: Array, shape: tuple[int, ...]) -> Array:
    if value.shape != shape:
        raise Undefined(f"a result of {value.shape}, declared as {shape}")
    return value


def _check_shape(found: tuple[int, ...], type: TensorType) -> None:
    if found != type.shape:
        raise Undefined(f"a result of {found}, declared as {type.shape}")
