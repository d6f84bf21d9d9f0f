"""Faults put into a written program are each caught by the check that is named for them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coreml_checks import CHECKS
from tiny_models import MemoryTensors, write_tiny_program

from edgedec.coreml import Package, package_files
from edgedec.coreml.program import Function, Operation, inline
from edgedec.coreml.schema import MESSAGES
from edgedec.coreml.types import Inline, Kind, Stored, TensorType
from edgedec.errors import EdgedecError

Operations = list[Operation]
Fault = Callable[[str, Operations], None]


def place(operations: Operations, kind: str, which: int = 0) -> int:
    return [i for i, op in enumerate(operations) if op.type == kind][which]


def constant_of(operations: Operations, name: str) -> int:
    return next(i for i, op in enumerate(operations) if op.outputs and op.outputs[0][0] == name)


def change_constant(operations: Operations, at: int, parameter: str, change: Callable) -> None:
    """Give an operation another constant, of its own."""
    operation = operations[at]
    (name,) = operation.inputs[parameter]
    constant = operations[constant_of(operations, name)]
    assert isinstance(constant.value, Inline)
    value = inline(change(constant.value.value))
    other = f"{operation.outputs[0][0]}_{parameter}"
    operations[at] = replace(operation, inputs={**operation.inputs, parameter: (other,)})
    operations.insert(at, Operation("const", {}, ((other, value.type),), value))


def weight(operations: Operations, part: str) -> int:
    return next(i for i, op in enumerate(operations) if op.outputs and part in op.outputs[0][0])


def swapped_weights(name: str, operations: Operations) -> None:
    one, two = (weight(operations, f"w_model_layers_{i}_mlp_gate_proj") for i in (0, 1))
    first, second = operations[one], operations[two]
    operations[one] = replace(first, value=second.value)
    operations[two] = replace(second, value=first.value)


def wrong_cache_row(name: str, operations: Operations) -> None:
    if name.startswith("move"):
        return
    at = place(operations, "slice_by_index", 1)  # values are read where the keys are
    change_constant(operations, at, "begin", lambda v: v - np.array([1, 0, 0, 0], np.int32))
    at = place(operations, "slice_by_index", 1)
    change_constant(operations, at, "end", lambda v: v - np.array([1, 0, 0, 0], np.int32))


def wrong_epsilon(name: str, operations: Operations) -> None:
    if not name.startswith("move"):
        at = place(operations, "rsqrt")
        change_constant(operations, at, "epsilon", lambda v: np.float32(1e-2))


def wrong_dtype(name: str, operations: Operations) -> None:
    at = place(operations, "gather")
    output, type = operations[at].outputs[0]
    operations[at] = replace(
        operations[at], outputs=((output, TensorType(Kind.FLOAT32, type.shape)),)
    )


def wrong_offset(name: str, operations: Operations) -> None:
    at = weight(operations, "w_model_embed") if not name.startswith("move") else None
    if at is not None:
        value = operations[at].value
        assert isinstance(value, Stored)
        operations[at] = replace(operations[at], value=Stored(value.type, value.offset + 64))


def off_by_one(name: str, operations: Operations) -> None:
    """Rows are written one slot behind the one that is theirs."""
    if name.startswith("move"):
        return
    one = inline(np.int32(1))
    for at, operation in enumerate(operations):
        inputs = {
            key: tuple("begin_1" if each == "begin" else each for each in given)
            for key, given in operation.inputs.items()
        }
        operations[at] = replace(operation, inputs=inputs)
    operations[:0] = [
        Operation("const", {}, (("one", one.type),), one),
        Operation("add", {"x": ("begin",), "y": ("one",)},
                  (("begin_1", TensorType(Kind.INT32, (1,))),)),
    ]  # fmt: skip


def wrong_block(name: str, operations: Operations) -> None:
    """The scales of one matrix's blocks of int4 are those of another's."""
    wrong_scales(name, operations)


def stale_state(name: str, operations: Operations) -> None:
    if name.startswith("read"):
        operations[:] = [op for op in operations if op.type != "write_state"]


def branches_stay(name: str, operations: Operations) -> None:
    if name.startswith("move"):
        operations[:] = [op for op in operations if op.type != "write_state"]


def wrong_scales(name: str, operations: Operations) -> None:
    if name.startswith("move"):
        return
    one, two = (weight(operations, f"w_model_layers_{i}_mlp_down_proj") for i in (0, 1))
    scale = operations[two].inputs["scale"]
    operations[one] = replace(operations[one], inputs={**operations[one].inputs, "scale": scale})


def missing_rotary(name: str, operations: Operations) -> None:
    if name.startswith("move"):
        return
    at = place(operations, "sub")
    x = operations[constant_of(operations, operations[at].inputs["x"][0])].inputs["x"]
    operations[at] = replace(operations[at], type="identity", inputs={"x": x})


def wrong_mask(name: str, operations: Operations) -> None:
    for at, operation in enumerate(operations):
        if operation.type == "scaled_dot_product_attention":
            kept = {key: given for key, given in operation.inputs.items() if key != "attn_mask"}
            operations[at] = replace(operation, inputs=kept)


def wrong_activation(name: str, operations: Operations) -> None:
    for at, operation in enumerate(operations):
        if operation.type == "silu":
            operations[at] = replace(operation, type="tanh")


def unknown_operation(name: str, operations: Operations) -> None:
    for at, operation in enumerate(operations):
        if operation.type == "silu":
            operations[at] = replace(operation, type="swish")


def nothing_is_kept(name: str, operations: Operations) -> None:
    """The blend form: old rows are dropped when new ones are written."""
    for at, operation in enumerate(operations):
        if operation.type == "mul" and operation.inputs["y"] == ("keep",):
            sub = Operation("sub", {"x": operation.inputs["x"], "y": operation.inputs["x"]},
                            operation.outputs)  # fmt: skip
            operations[at] = sub


def everything_is_kept(name: str, operations: Operations) -> None:
    """The blend form: new rows are added to what stood there."""
    for at, operation in enumerate(operations):
        if operation.type == "mul" and operation.inputs["y"] == ("keep",):
            x = operation.inputs["x"]
            operations[at] = Operation("identity", {"x": x}, operation.outputs)


FAULTS: list[tuple[str, str, Fault, str]] = [
    ("slice", "fp16", swapped_weights, "source"),
    ("slice", "fp16", wrong_cache_row, "layers"),
    ("slice", "fp16", wrong_epsilon, "layers"),
    ("slice", "fp16", wrong_dtype, "types"),
    ("slice", "fp16", wrong_offset, "files"),
    ("slice", "fp16", off_by_one, "layers"),
    ("slice", "fp16", stale_state, "states"),
    ("slice", "fp16", branches_stay, "states"),
    ("slice", "int8", wrong_scales, "source"),
    ("slice", "int4", wrong_block, "source"),
    ("slice", "fp16", missing_rotary, "layers"),
    ("slice", "fp16", wrong_mask, "layers"),
    ("slice", "fp16", wrong_activation, "layers"),
    ("slice", "fp16", unknown_operation, "types"),
    ("blend", "fp16", nothing_is_kept, "states"),
    ("blend", "fp16", everything_is_kept, "states"),
]


def put(folder: Path, fault: Fault) -> None:
    """Write the package again with a fault in all its functions."""
    package = Package.open(folder)
    file = package_files(folder)[0]
    model = MESSAGES.decode("Model", memoryview(file.read_bytes()))
    for name in package.names:
        function = package.function(name)
        operations = list(function.operations)
        if name.startswith("move") and fault in (wrong_activation, swapped_weights):
            continue
        fault(name, operations)
        changed: Function = replace(function, operations=operations)
        model["mlProgram"]["functions"][name] = changed.encoded()
    file.write_bytes(MESSAGES.encode("Model", model))


@pytest.mark.parametrize(
    ("form", "weights", "fault", "check"), FAULTS, ids=[fault.__name__ for _, _, fault, _ in FAULTS]
)
def test_each_fault_is_caught(
    tmp_path: Path, form: str, weights: str, fault: Fault, check: str
) -> None:
    spec, tensors = write_tiny_program(tmp_path, form, weights)
    reader, folder = MemoryTensors(tensors), tmp_path / "model.mlpackage"
    options = {"most": {"int8": 0.5, "int4": 4.0}[weights]} if weights != "fp16" else {}
    CHECKS[check](folder, spec, reader, **options)  # the sound program passes
    put(folder, fault)
    for before in list(CHECKS)[: list(CHECKS).index(check)]:
        if before != "source":
            CHECKS[before](folder, spec, reader)  # it is this check that is needed
    with pytest.raises((AssertionError, EdgedecError)):
        CHECKS[check](folder, spec, reader, **options)
