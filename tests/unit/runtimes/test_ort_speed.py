"""What a device reaches through ONNX Runtime: the graphs, and what is said of one that cannot."""

import types
from typing import Any

import numpy as np
import pytest

from edgedec.bundle.protobuf import fields, message
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware import speed as taking
from edgedec.hardware.device import Device
from edgedec.hardware.speed import SIDE, CannotCompute
from edgedec.runtimes._ort import devices, opening, speed
from edgedec.runtimes._ort.devices import CPU, available_devices, find_devices
from edgedec.runtimes.onnx import adapter

PROCESSOR = find_devices("onnx")[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix, few rows."""
    monkeypatch.setattr(taking, "affordable", lambda weights, free: 1)
    monkeypatch.setattr(taking, "WIDTHS", (8,))


def ready(weights: str, count: int, rows: int) -> Any:
    return speed._ready(available_devices()[0], 1, weights, count, rows)


def test_the_processor_is_measured(small: None) -> None:
    found = adapter.measure(PROCESSOR, 1)
    assert found.weights == "f32"
    for rate in (found.bytes_per_second, found.int4_bytes_per_second):
        assert rate is not None
        assert 1e6 < rate < 1e13
    assert found.int4_flops is not None


@pytest.mark.parametrize("weights", ["f32", "f16", "int4"])
def test_products_are_numpys(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, size = taking.measured(ready, weights, 2, 3)
    assert size == 2 * SIDE * SIDE * {"f32": 4, "f16": 2, "int4": 0.5 + 4 / 32}[weights]
    # The control: other weights are noticed.
    other = np.roll(taking.matrix(), 1, axis=0)
    monkeypatch.setattr(taking, "matrix", lambda: other)
    with pytest.raises(CannotCompute, match="numbers are wrong"):
        taking.measured(ready, weights, 2, 3)


@pytest.mark.parametrize("weights", ["f32", "f16", "int4"])
def test_graphs_are_sound_for_the_onnx_package(weights: str) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: extra export")
    values = speed._matrices(weights, 2, np.float16 if weights == "f16" else np.float32)
    assert not np.shares_memory(values["w0"], values["w1"])
    dtype = np.float16 if weights == "f16" else np.float32
    shapes = {"x": (1, SIDE), "column": (3, 1), "row": (1, 3)}
    data = speed.graph(values, {name: np.zeros(shape, dtype) for name, shape in shapes.items()})
    model = onnx.load_from_string(data)
    assert model.ByteSize() == len(data), "nothing was read that onnx does not know"
    for tensor in model.graph.initializer:  # what the checker would look for in a file
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = values[tensor.name].tobytes()
    onnx.checker.check_model(model, full_check=weights != "int4")
    damaged = bytearray(data)
    damaged[3] ^= 1
    with pytest.raises(Exception, match=r"[Pp]ars|protobuf|[Dd]ecod"):
        onnx.load_from_string(bytes(damaged))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_numbers_on_the_wire(value: int) -> None:
    inner = message((1, value))
    written = message((7, "x" * value if value < 1000 else inner), (value % 100 + 1, inner))
    found = [(number, bytes(data or b"")) for number, data in fields(memoryview(written))]
    assert found == [
        (7, b"x" * value if value < 1000 else inner),
        (value % 100 + 1, inner),
    ]
    assert len(inner) == 1 + max(1, -(-value.bit_length() // 7))


def test_wrong_numbers_are_no_speed(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = speed.open_session

    def wrong(*args: Any) -> Any:
        session = real(*args)
        return types.SimpleNamespace(run=lambda *a: [session.run(*a)[0] * 1.5])

    monkeypatch.setattr(speed, "open_session", wrong)
    with pytest.raises(RuntimeUnavailable, match=r"cpu .*its numbers are wrong"):
        adapter.measure(PROCESSOR, 1)


def test_a_device_that_cannot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise RuntimeError("no backend\nfor this device")

    monkeypatch.setattr(opening, "WatchedSession", fails)
    with pytest.raises(RuntimeUnavailable) as caught:
        adapter.measure(PROCESSOR, 1)
    assert str(caught.value) == f"cpu ({CPU}) cannot compute a product: no backend"
    gone = Device("onnx", "openvino:gpu7", "gpu", "", "OpenVINOExecutionProvider")
    with pytest.raises(RuntimeUnavailable, match=r"in this onnxruntime|openvino:gpu7"):
        adapter.measure(gone, 1)


def test_a_card_without_halves_is_taken_with_singles(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor stands for the card; its float16 product is said to be missing."""
    card = devices.OrtDevice(Device("onnx", "card", "gpu", "", CPU), available_devices()[0].handle)
    monkeypatch.setattr(speed, "choose", lambda *_: [card])
    assert adapter.measure(card.device, 1).weights == "f16"
    real = speed._opened

    def opened(offer: Any, threads: int, weights: Any, rows: int) -> Any:
        if any(values.dtype == np.float16 for values in weights.values()):
            raise CannotCompute("no halves")
        return real(offer, threads, weights, rows)

    monkeypatch.setattr(speed, "_opened", opened)
    found = adapter.measure(card.device, 1)
    # Four bits need no halves: their scales and activations may be singles.
    assert found.weights == "f32"
    assert found.int4_flops is not None
