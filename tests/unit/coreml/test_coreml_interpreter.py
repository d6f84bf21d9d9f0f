"""The interpreter computes what the program says, and refuses what it cannot mean."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_program

from edgedec.coreml import Package
from edgedec.coreml.builder import FunctionBuilder, integers
from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter, empty_state
from edgedec.coreml.package import WEIGHTS
from edgedec.coreml.program import Function, Operation
from edgedec.coreml.types import Kind, TensorType
from edgedec.errors import BundleError


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package.open(tiny_program.write(tmp_path / "tiny.mlpackage"))


def interpreter(package: Package, function: Function, exact: bool = True) -> Interpreter:
    """The interpreter of a function that need not be in the file."""
    package._decoded[function.name] = function
    return Interpreter(Constants(package, exact=exact), function.name)


def feeds(ids: list[int], begin: int) -> dict[str, np.ndarray]:
    return {"ids": np.array(ids, np.int32), "begin": np.array([begin], np.int32)}


@pytest.mark.parametrize(("exact", "tolerance"), [(True, 1e-5), (False, 0.05)])
def test_two_passes_over_one_state(package: Package, exact: bool, tolerance: float) -> None:
    # Two, since a state whose second reading is lost passes a test of one.
    run = interpreter(package, package.function("two"), exact).run
    state, kept = empty_state(package.function("two")), np.zeros((1, 8, 4), np.float32)
    for ids, begin in (([3, 4], 0), ([9, 1], 2), ([5, 5], 6)):
        found = run(feeds(ids, begin), state)
        wanted = tiny_program.expected(ids, kept, begin)
        np.testing.assert_allclose(found["logits"], wanted, atol=tolerance)
        np.testing.assert_array_equal(state["kept"], kept)
        order = np.argsort(-found["logits"], axis=-1, kind="stable")[:, :3]
        np.testing.assert_array_equal(found["top_1"], order)


def test_functions_share_a_state(package: Package) -> None:
    constants = Constants(package, exact=True)
    one, two = Interpreter(constants, "one"), Interpreter(constants, "two")
    state, kept = empty_state(two.function), np.zeros((1, 8, 4), np.float32)
    two.run(feeds([3, 4], 0), state)
    tiny_program.expected([3, 4], kept, 0)
    np.testing.assert_allclose(
        one.run(feeds([7], 2), state)["logits"], tiny_program.expected([7], kept, 2), atol=1e-5
    )


def test_fp16_values_are_rounded(package: Package) -> None:
    found = interpreter(package, package.function("two"), exact=False).run(
        feeds([3, 4], 0), empty_state(package.function("two"))
    )["logits"]
    np.testing.assert_array_equal(found, found.astype(np.float16))
    exact = interpreter(package, package.function("two")).run(
        feeds([3, 4], 0), empty_state(package.function("two"))
    )["logits"]
    assert (exact != exact.astype(np.float16)).any()


def test_scales_that_are_infinite_warn_nobody(tmp_path: Path) -> None:
    # A warning is an error in tests; where nobody makes it one it would be printed.
    folder = tiny_program.write(tmp_path / "tiny.mlpackage")
    package = Package.open(folder)
    stored = {
        op.outputs[0][0]: op.inputs
        for op in package.function("two").operations
        if op.type.startswith("constexpr")
    }
    (scale,) = stored["w_first"]["scale"]
    start, size = package.blob.place(scale)
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[start : start + size] = np.full(size // 2, np.inf, np.float16).tobytes()
    (folder / WEIGHTS).write_bytes(data)
    damaged = Package.open(folder)
    found = interpreter(damaged, damaged.function("two")).run(
        feeds([3, 4], 0), empty_state(damaged.function("two"))
    )
    assert not np.isfinite(found["logits"]).all()


def test_names_are_shown_in_one_line(package: Package) -> None:
    function = package.function("two")
    for changed in (
        replace(function, outputs=("lo\ngits",)),
        replace(function, name="t\nwo", outputs=("nothing",)),
    ):
        with pytest.raises(BundleError, match="no output"):
            interpreter(package, changed)


def test_a_call_can_be_ended(package: Package) -> None:
    calls = iter(range(9))

    def check() -> None:
        if next(calls) == 5:
            raise InterruptedError

    run = interpreter(package, package.function("two")).run
    with pytest.raises(InterruptedError):
        run(feeds([3, 4], 0), empty_state(package.function("two")), check)


# -- what may be overwritten --------------------------------------------------------------------


def updating(write: str, later: str = "") -> Function:
    """Update a state; ``later`` a value that was read before is returned as well."""
    f = FunctionBuilder("updating")
    update = f.input("update", Kind.FLOAT16, 1, 2)
    state = f.state("kept", 3, 2)
    before = f.read(state)
    second = f.part(before, (1, 0), (2, 2))
    low, high = f.constant(integers(1, 0)), f.constant(integers(2, 2))
    new = f.like("slice_update", before, update=update, begin=low, end=high)
    if write == "new":
        f.write(state, new)
    after = f.read(state)
    outputs = {"": after, "view": second, "before": before}
    f.output(*{after, f.like("identity", outputs[later])} if later else (after, new))
    return f.built()


@pytest.mark.parametrize("later", ["view", "before"])
def test_values_read_before_an_update_stay(package: Package, later: str) -> None:
    function = updating("new", later)
    state = {"kept": np.arange(6, dtype=np.float32).reshape(3, 2)}
    found = interpreter(package, function).run({"update": np.full((1, 2), 9, np.float32)}, state)
    old = np.arange(6, dtype=np.float32).reshape(3, 2)
    copy = next(name for name in function.outputs if name != function.operations[-2].outputs[0][0])
    np.testing.assert_array_equal(found[copy], old[1:2] if later == "view" else old)
    np.testing.assert_array_equal(state["kept"], [[0, 1], [9, 9], [4, 5]])


def test_an_update_that_is_not_written_changes_no_state(package: Package) -> None:
    state = {"kept": np.arange(6, dtype=np.float32).reshape(3, 2)}
    run = interpreter(package, updating("nothing")).run
    run({"update": np.full((1, 2), 9, np.float32)}, state)
    np.testing.assert_array_equal(state["kept"], np.arange(6).reshape(3, 2))


def test_a_state_is_updated_in_its_own_memory(package: Package) -> None:
    state = empty_state(package.function("two"))
    memory = state["kept"]
    interpreter(package, package.function("two")).run(feeds([3, 4], 0), state)
    assert np.shares_memory(memory, state["kept"])


# -- what is refused ----------------------------------------------------------------------------

Change = Callable[[Operation], Operation]


def changed(package: Package, kind: str, change: Change) -> Function:
    """The function with the first operation of a kind changed."""
    function = package.function("two")
    index = next(i for i, op in enumerate(function.operations) if op.type == kind)
    operations = list(function.operations)
    operations[index] = change(operations[index])
    return replace(function, operations=operations)


def typed(operation: Operation, kind: Kind, *shape: int) -> Operation:
    return replace(operation, outputs=((operation.outputs[0][0], TensorType(kind, shape)),))


BROKEN: dict[str, tuple[str, Change, str]] = {
    "unknown": ("silu", lambda op: replace(op, type="swish"), "not an operation"),
    "parameter": (
        "silu", lambda op: replace(op, inputs={"y": op.inputs["x"]}), "parameters x, y",
    ),
    "missing": ("linear", lambda op: replace(op, inputs={"x": op.inputs["x"]}), "weight"),
    "undefined": ("silu", lambda op: replace(op, inputs={"x": ("nothing",)}), "not known"),
    "twice": (
        "silu", lambda op: replace(op, outputs=(("logits", op.outputs[0][1]),)), "second value",
    ),
    "kind": ("silu", lambda op: typed(op, Kind.FLOAT32, 2, 6), "its result FLOAT32"),
    "huge": ("silu", lambda op: typed(op, Kind.FLOAT16, 1 << 20, 1 << 20), "numbers"),
    "constant": (
        "constexpr_lut_to_dense", lambda op: typed(op, Kind.FLOAT16, 10, 7), "declared as",
    ),
    "state": (
        "read_state", lambda op: typed(op, Kind.FLOAT16, 1, 8, 5), "for a state",
    ),
    "no state": ("read_state", lambda op: replace(op, inputs={"input": ("x",)}), "not known"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "words"), BROKEN.values(), ids=list(BROKEN))
def test_a_program_that_makes_no_sense(
    package: Package, kind: str, change: Change, words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        interpreter(package, changed(package, kind, change))


@pytest.mark.parametrize("shape", [(2, 7), (12,), (2, 6, 1)])
def test_a_result_of_another_shape(package: Package, shape: tuple[int, ...]) -> None:
    function = changed(package, "silu", lambda op: typed(op, Kind.FLOAT16, *shape))
    with pytest.raises(BundleError, match="declared as"):
        interpreter(package, function).run(feeds([3, 4], 0), empty_state(function))


@pytest.mark.parametrize(("ids", "begin"), [([3, 10], 0), ([-1, 3], 0), ([3, 4], 7), ([3, 4], -1)])
def test_places_that_are_not_there(package: Package, ids: list[int], begin: int) -> None:
    run = interpreter(package, package.function("two")).run
    with pytest.raises(BundleError, match=r"index|slice"):
        run(feeds(ids, begin), empty_state(package.function("two")))


def test_a_product_larger_than_declared_is_not_computed(package: Package) -> None:
    f = FunctionBuilder("large")
    x = f.input("x", Kind.FLOAT16, 1 << 20, 1)
    y = f.transpose(x, 1, 0)
    f.output(f.operation("mul", TensorType(Kind.FLOAT16, (4, 4)), x=x, y=y)[0])
    with pytest.raises(BundleError, match="declared as"):
        interpreter(package, f.built()).run({"x": np.zeros((1 << 20, 1), np.float32)}, {})


def refused_in_little_memory(
    package: Package, function: Function, words: str, given: dict[str, np.ndarray]
) -> None:
    run = interpreter(package, function).run
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match=words):
            run(given, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("axis", [0, -2])
def test_a_gather_larger_than_declared_is_not_computed(package: Package, axis: int) -> None:
    f, rows = FunctionBuilder("large"), 1 << 12
    x, ids = f.input("x", Kind.FLOAT16, 2, rows), f.input("ids", Kind.INT32, rows)
    type = TensorType(Kind.FLOAT16, (4, rows))
    f.output(f.operation("gather", type, x=x, indices=ids, axis=np.int32(axis))[0])
    given = {"x": np.zeros((2, rows), np.float32), "ids": np.zeros(rows, np.int32)}
    refused_in_little_memory(package, f.built(), "declared as", given)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_gather_along_any_axis(package: Package, axis: int) -> None:
    x, ids = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([[2, 0]], np.int32)
    expected = np.take(x, ids, axis)
    f = FunctionBuilder("gathered")
    given = f.input("x", Kind.FLOAT16, 3, 4), f.input("ids", Kind.INT32, 1, 2)
    type = TensorType(Kind.FLOAT16, expected.shape)
    f.output(f.operation("gather", type, x=given[0], indices=given[1], axis=np.int32(axis))[0])
    (found,) = interpreter(package, f.built()).run({"x": x, "ids": ids}, {}).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_whose_scores_are_too_many(package: Package, masked: bool) -> None:
    f, rows = FunctionBuilder("large"), (1 << 14) + 1
    names = ("query", "key", "value")
    half = Kind.FLOAT16
    inputs = {name: f.input(name, half, 1, 1 if masked else rows, 1) for name in names}
    if masked:  # the mask widens the scores
        inputs["attn_mask"] = f.input("attn_mask", half, 1 << 21, 1, 1)
    type = TensorType(half, inputs["query"].shape)
    f.output(f.operation("scaled_dot_product_attention", type, **inputs)[0])
    given = {name: np.zeros(value.shape, np.float32) for name, value in inputs.items()}
    words = "declared as" if masked else r"scores of \(1, 16385, 16385\)"
    refused_in_little_memory(package, f.built(), words, given)
