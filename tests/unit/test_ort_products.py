"""The graphs that speed is measured with, held against the onnx package and numpy."""

import numpy as np
import onnxruntime as ort
import pytest

from edgedec.hardware.speed import SIDE
from edgedec.runtimes._ort import products
from edgedec.runtimes._ort.products import Chain, float_chain, int4_chain

CHAINS = {
    "f32": lambda rows: float_chain(2, rows),
    "f16": lambda rows: float_chain(1, rows, np.float16),
    "int4": lambda rows: int4_chain(2, rows),
}


def run(chain: Chain, weights: dict[str, np.ndarray] | None = None) -> np.ndarray:
    options = ort.SessionOptions()
    values = [ort.OrtValue.ortvalue_from_numpy(w) for w in (weights or chain.weights).values()]
    options.add_external_initializers(list(chain.weights), values)
    session = ort.InferenceSession(chain.model, options, ["CPUExecutionProvider"])
    (y,) = session.run(None, chain.feeds)
    return y


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", CHAINS)
def test_sound_for_the_onnx_package(kind: str, rows: int) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: extra export")
    chain = CHAINS[kind](rows)
    model = onnx.load_from_string(chain.model)
    # The same bytes again: nothing was read that onnx does not know, nothing was lost.
    assert model.SerializeToString(deterministic=True)
    assert not model.FindInitializationErrors()
    assert model.ByteSize() == len(chain.model)
    for tensor in model.graph.initializer:  # what the checker would look for in a file
        values = chain.weights[tensor.name]
        assert tuple(tensor.dims) == values.shape
        assert onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type) == values.dtype
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = values.tobytes()
    onnx.checker.check_model(model, full_check=kind != "int4")
    shapes = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in [*model.graph.input, *model.graph.output]
    }
    assert shapes == {"x": (1, SIDE), "column": (rows, 1), "row": (1, rows), "y": (1, SIDE)}


def test_a_damaged_field_is_noticed() -> None:
    """The control: with one byte of a length changed the onnx package refuses the model."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: extra export")
    content = bytearray(float_chain(1, 1).model)
    content[3] ^= 1
    with pytest.raises(Exception, match=r"[Pp]ars|protobuf|[Dd]ecod"):
        onnx.load_from_string(bytes(content))


@pytest.mark.parametrize(("kind", "error"), [("f32", 1e-4), ("f16", 2e-2), ("int4", 5e-2)])
def test_computes_what_it_says(kind: str, error: float) -> None:
    chain = CHAINS[kind](5)
    expected = chain.expected
    assert 0.3 < np.linalg.norm(expected) / SIDE**0.5 < 3  # neither nothing nor overflow
    assert np.linalg.norm(run(chain) - expected) < error * np.linalg.norm(expected)
    # The control: with other weights it is another row.
    other = {name: np.roll(values, 1) for name, values in chain.weights.items()}
    assert np.linalg.norm(run(chain, other) - expected) > 0.5 * np.linalg.norm(expected)


def test_what_a_run_costs() -> None:
    chain = float_chain(3, 4)
    assert chain.weight_bytes == 3 * SIDE * SIDE * 4
    assert chain.operations == 2 * 4 * 3 * SIDE * SIDE
    assert int4_chain(1, 1).weight_bytes == SIDE * SIDE // 2 + SIDE * SIDE // 32 * 4
    # Each matrix stands in memory of its own, or caches would hold the one.
    first, second, _ = chain.weights.values()
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_numbers_on_the_wire(value: int) -> None:
    from edgedec.bundle.onnx_file import _varint as read

    assert read(memoryview(products._varint(value)), 0) == (value, len(products._varint(value)))
