"""The steps of a function, and which values may be overwritten in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec.coreml.operations import Arguments, Rule, Undefined, slices
from edgedec.coreml.program import Operation
from edgedec.coreml.types import Array

State = dict[str, Array]


@dataclass(slots=True)
class Step:
    """An operation, ready to be computed.

    Attributes:
        operation, rule: what it is.
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
