"""A small CoreML program with a state, weights in several forms and most kinds of operations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgedec.coreml import Package
from edgedec.coreml.builder import FunctionBuilder, Value, integers
from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter, empty_state
from edgedec.coreml.package import check_listed, package_files
from edgedec.coreml.program import Function
from edgedec.coreml.types import Array, Kind, Stored, TensorType
from edgedec.coreml.writer import PackageWriter

_MOST_INPUTS, _MOST_STATE = 99, 1 << 20
ROWS, SLOTS, WIDTH, WORDS = 2, 8, 4, 10
FACTS = {"graph_version": 1, "name": "tiny"}


def arrays(seed: int = 0) -> dict[str, Array]:
    """Return what it stores: a table, a matrix of four bits with its scales, and a palette."""
    rng = np.random.default_rng(seed)
    return {
        "table": rng.standard_normal((WORDS, WIDTH)).astype(np.float16),
        "digits": rng.integers(-8, 8, (6, WIDTH)).astype(np.int8),
        "scales": (0.1 + rng.random((6, 2))).astype(np.float16),
        "indices": rng.integers(0, 16, (WORDS, 6)).astype(np.uint8),
        "lut": rng.standard_normal((2, 1, 16, 1)).astype(np.float16),
    }


def packed(values: Array) -> Array:
    """Return numbers of four bits, two to a byte, the first in the low half."""
    flat = values.astype(np.uint8).reshape(-1) & 15
    pairs: Array = flat[0::2] | (flat[1::2] << 4)
    return pairs


def stored(writer: PackageWriter, seed: int = 0) -> dict[str, Stored]:
    """Write the arrays."""
    kinds = {"digits": Kind.INT4, "indices": Kind.UINT4}
    found = {}
    for name, values in arrays(seed).items():
        type = TensorType(kinds.get(name, Kind.FLOAT16), values.shape)
        part = packed(values) if name in kinds else values
        half = len(part) // 2
        found[name] = writer.blob.add(type, [part[:half], part[half:]])
    return found


def function(name: str, at: dict[str, Stored], rows: int = ROWS) -> Function:
    """Return a function that keeps rows of the table in its state, at ``begin``.

    What it returns depends on the sum of all slots.
    """
    f = FunctionBuilder(name)
    ids, begin = f.input("ids", Kind.INT32, rows), f.input("begin", Kind.INT32, 1)
    kept = f.state("kept", 1, SLOTS, WIDTH)
    table = f.weight("w_table", "const", at["table"], at["table"].type)
    half = Kind.FLOAT16
    first = f.weight(
        "w_first", "constexpr_blockwise_shift_scale",
        {"data": at["digits"], "scale": at["scales"]}, TensorType(half, (6, WIDTH)),
    )  # fmt: skip
    second = f.weight(
        "w_second", "constexpr_lut_to_dense",
        {"indices": at["indices"], "lut": at["lut"]}, TensorType(half, (WORDS, 6)),
    )  # fmt: skip
    x = f.gather(table, ids)
    current = f.read(kept)
    end = f.binary("add", begin, rows)
    low = f.concat([f.constant(integers(0)), begin, f.constant(integers(0))], 0)
    high = f.concat([f.constant(integers(1)), end, f.constant(integers(WIDTH))], 0)
    new = f.like("slice_update", current, update=f.reshape(x, 1, rows, WIDTH), begin=low, end=high)
    f.write(kept, new)
    seen = f.reshape(f.read(kept), SLOTS, WIDTH)
    total = f.operation(
        "reduce_sum", TensorType(half, (1, WIDTH)), x=seen, axes=integers(0),
        keep_dims=np.bool_(True),
    )[0]  # fmt: skip
    inner = f.like("silu", f.linear(f.binary("add", x, total), first))
    logits = f.linear(inner, second, name="logits")
    top, which = f.operation(
        "topk", TensorType(half, (rows, 3)), TensorType(Kind.INT32, (rows, 3)), name="top",
        x=logits, k=np.int32(3), axis=np.int32(-1), ascending=np.bool_(False),
        sort=np.bool_(True), return_indices=np.bool_(True), output_indices_dtype="int32",
    )  # fmt: skip
    f.output(logits, top, which)
    return f.built()


def write(folder: Path, seed: int = 0) -> Path:
    """Write the package: the same function for one row and for two."""
    with PackageWriter(folder) as writer:
        at = stored(writer, seed)
        writer.add(function("one", at, 1))
        writer.add(function("two", at, 2))
        writer.save("two", "a tiny program", FACTS)
    return folder


def use(folder: Path) -> Iterator[str]:
    """Do with a package all that a runtime does; yield each stage that is reached.

    The stages are ``opened``, ``compiled`` and ``computed``, the last two for each function. A
    function with other or larger inputs or states than the program's is not computed.

    Raises:
        BundleError: the package is refused.

    """
    check_listed(package_files(folder)[0], package_files(folder))
    package = Package.open(folder)
    _ = package.facts
    yield "opened"
    constants = Constants(package, exact=False)
    for name in package.names:
        interpreter = Interpreter(constants, name)
        yield "compiled"
        function = interpreter.function
        sizes = [
            sum(type.count for type in of.values()) for of in (function.inputs, function.states)
        ]
        if set(function.inputs) != {"ids", "begin"} or sizes[0] > _MOST_INPUTS:
            continue
        if sizes[1] <= _MOST_STATE:
            feeds = {key: np.ones(type.shape, np.int32) for key, type in function.inputs.items()}
            interpreter.run(feeds, empty_state(function))
            yield "computed"


def expected(ids: list[int], kept: np.ndarray, begin: int) -> np.ndarray:
    """What the function returns, in float32 throughout; ``kept`` is changed as the state is."""
    a = {name: values.astype(np.float32) for name, values in arrays().items()}
    x = a["table"][ids]
    kept[0, begin : begin + len(ids)] = x
    first = a["digits"] * np.repeat(a["scales"], 2, axis=1)
    table = a["lut"].reshape(2, 16)
    second = np.stack(
        [table[row * 2 // WORDS][line] for row, line in enumerate(arrays()["indices"])]
    )
    inner = (x + kept[0].sum(axis=0)) @ first.T
    return (inner / (1 + np.exp(-inner))) @ second.T


def value(function: Function, name: str) -> Value:
    """A value of a function by its name."""
    types = {each: type for op in function.operations for each, type in op.outputs}
    return Value(name, types[name])
