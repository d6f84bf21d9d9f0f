"""llama.cpp's devices: what they are, and products measured on them."""

import ctypes
import functools
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.hardware import speed as taking
from edgedec.hardware.device import Device
from edgedec.hardware.speed import SIDE, CannotCompute
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.llamacpp import adapter as llamacpp
from edgedec.runtimes.llamacpp import backends, opening, speed
from edgedec.runtimes.llamacpp.backends import Backend, find_backends, find_devices


@pytest.fixture
def processor() -> Backend:
    found = [backend for backend in find_backends() if backend.name == "CPU"]
    if not found or not found[0].pointer:
        pytest.skip("this llama.cpp does not tell its devices")
    return found[0]


def test_devices_and_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [
        Backend("Vulkan0", "a card", True, 0),
        Backend("HTP0", "a neural processor", True, 0),
        Backend("BLAS", "its library", False, 0),
        Backend("CPU", "a processor", False, 0),
    ]
    monkeypatch.setattr(backends, "find_backends", lambda: here)
    found = find_devices()
    assert [(d.name, d.kind) for d in found] == [
        ("cpu", "cpu"),
        ("Vulkan0", "gpu"),
        ("HTP0", "npu"),
    ]
    assert found[0].description.endswith("with BLAS")
    assert {d.memory_total for d in found} == {None}


def test_memory_of_a_card(processor: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ggml tells it; the processor's own is the machine's."""
    own = processor.memory
    assert own is not None
    free, total = own
    assert 0 < free <= total
    card = Backend("Vulkan0", "a card", True, processor.pointer)
    monkeypatch.setattr(backends, "find_backends", lambda: [card])
    (device,) = find_devices()
    assert device.memory_total == total
    assert device.memory_free is not None


def test_the_processor_is_measured(monkeypatch: pytest.MonkeyPatch, processor: Backend) -> None:
    monkeypatch.setattr(taking, "affordable", lambda weights, free: 1)
    monkeypatch.setattr(taking, "WIDTHS", (8,))
    found = registry.adapter("llamacpp").measure(llamacpp.devices()[0], 1)
    assert found.weights == "f32"
    for rate in (found.bytes_per_second, found.int4_bytes_per_second):
        assert rate is not None
        assert 1e6 < rate < 1e13
    assert found.int4_flops is not None


@pytest.mark.parametrize("weights", ["f32", "f16", "int4"])
def test_products_are_numpys(
    weights: str, processor: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = functools.partial(speed.ready, processor, 1)
    _, size = taking.measured(prepare, weights, 2, 3)
    assert size == 2 * SIDE * SIDE * {"f32": 4, "f16": 2, "int4": 18 / 32}[weights]
    # The control: other weights are noticed.
    other = np.roll(taking.matrix(), 1, axis=0)
    monkeypatch.setattr(taking, "matrix", lambda: other)
    with pytest.raises(CannotCompute, match="numbers are wrong"):
        taking.measured(prepare, weights, 2, 3)


def test_weights_in_the_devices_own_order(
    processor: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed with as llama.cpp would hold them, and where that fails as they are."""
    tried: list[int] = []
    real = speed._Chain.put

    def put(self: Any, weights: str, buffers: int, count: int) -> int:
        tried.append(buffers)
        return real(self, weights, buffers, count)

    monkeypatch.setattr(speed._Chain, "put", put)
    plain = backends.ggml().ggml_backend_dev_buffer_type(processor.pointer)
    own = speed._reordered(processor)
    with speed.ready(processor, 1, "f32", 1, 1):
        pass
    assert tried == [*own, plain]  # no order of its own is for single precision
    names = [backends.ggml().ggml_backend_buft_name(kind) for kind in own]
    assert not any(b"AMX" in name for name in names)
    monkeypatch.setattr(speed, "reorders_weights", lambda: False)
    assert speed._reordered(processor) == []


class Failing:
    """ggml, but for one function."""

    def __init__(self, name: str, result: object) -> None:
        self._name, self._result, self._real = name, result, backends.ggml()

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            return lambda *_: self._result
        return getattr(self._real, name)


@pytest.mark.parametrize(
    ("function", "result", "words"),
    [
        ("ggml_backend_dev_init", None, "does not start"),
        ("ggml_backend_alloc_ctx_tensors_from_buft", None, "no memory on the device"),
        ("ggml_backend_dev_supports_op", False, "no such product"),
        ("ggml_backend_graph_compute", -1, "fails while it computes"),
        ("ggml_init", None, "no memory"),
    ],
)
def test_a_device_that_cannot_says_why(
    function: str,
    result: object,
    words: str,
    processor: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Failing(function, result)
    monkeypatch.setattr(speed, "ggml", lambda: broken)
    with pytest.raises(RuntimeUnavailable, match=words) as caught:
        speed.measure(llamacpp.devices()[0], 1)
    assert str(caught.value).startswith("cpu (llama.cpp) cannot compute a product: ")
    assert "\n" not in str(caught.value)


def test_everything_is_given_back(processor: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when something fails in between: what is made is freed once."""
    made = {
        "ggml_init": "ggml_free",
        "ggml_backend_dev_init": "ggml_backend_free",
        "ggml_backend_alloc_ctx_tensors_from_buft": "ggml_backend_buffer_free",
    }
    open_now: dict[str, list[int]] = {name: [] for name in made}
    real = backends.ggml()

    def counting(name: str) -> Any:
        def make(*arguments: Any) -> Any:
            pointer = getattr(real, name)(*arguments)
            open_now[name].append(pointer)
            return pointer

        def free(pointer: int) -> None:
            of = next(maker for maker, freer in made.items() if freer == name)
            open_now[of].remove(pointer)
            getattr(real, name)(pointer)

        if name in made:
            return make
        if name in made.values():
            return free
        return getattr(real, name)

    library = types.SimpleNamespace(**{name: counting(name) for name in backends._FUNCTIONS})
    monkeypatch.setattr(speed, "ggml", lambda: library)
    with speed.ready(processor, 1, "int4", 1, 1):
        assert all(open_now.values())
    library.ggml_backend_graph_compute = lambda *_: -1
    with pytest.raises(CannotCompute), speed.ready(processor, 1, "int4", 1, 1):
        pass
    assert open_now == {name: [] for name in made}


def test_a_device_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeUnavailable, match=r"no device 'Vulkan7' .*CPU"):
        speed.measure(Device("llamacpp", "Vulkan7", "gpu", ""), 1)
    # On Windows the functions stand in another library.
    monkeypatch.setattr(speed, "find_backends", lambda: [Backend("CPU", "", False, 0)])
    with pytest.raises(RuntimeUnavailable, match="does not expose its matrix products"):
        speed.measure(Device("llamacpp", "cpu", "cpu", ""), 1)


def test_a_library_without_these_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise AttributeError("ggml_backend_dev_count")

    monkeypatch.setattr(backends, "ggml", missing)
    (only,) = find_backends()
    assert (only.name, only.takes_layers, only.memory) == ("CPU", False, None)


def test_a_backend_of_its_own_that_is_missing() -> None:
    """In a process of its own: a backend is loaded once for all."""
    code = (
        "from edgedec.runtimes.llamacpp import adapter as llamacpp;"
        "print(llamacpp.problems(), len(llamacpp.devices()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GGML_BACKEND_PATH": "/nowhere/libggml-card.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    problems, _, count = done.stdout.strip().rpartition(" ")
    assert int(count) >= 1
    assert "GGML_BACKEND_PATH /nowhere/libggml-card.so does not load: " in problems
    assert done.stderr == ""


def test_backends_beside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never in the current folder, where llama.cpp itself would load what it finds."""
    folders: list[str] = []
    library = types.SimpleNamespace(
        ggml_backend_reg_count=lambda: len(folders),
        ggml_backend_load_all_from_path=lambda folder: folders.append(os.fsdecode(folder)),
    )
    monkeypatch.setattr(backends, "ggml", lambda: library)
    monkeypatch.setenv("GGML_BACKEND_PATH", "/somewhere/libggml-card.so")
    # Beneath the cache: what this process has loaded stays loaded.
    assert backends.load_plugins.__wrapped__() is None
    (folder,) = folders
    assert Path(folder).is_absolute()
    assert any("llama" in file.name for file in Path(folder).iterdir())


def test_a_model_is_loaded_after_the_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would not find the device that it is to go to."""
    file = write_tiny_gguf(tmp_path / "any.gguf")
    asked = []
    monkeypatch.setattr(opening, "load_plugins", lambda: asked.append("backends"))
    monkeypatch.setattr(opening.api, "llama_model_load_from_file", lambda *_: asked.append("model"))
    with pytest.raises(BundleError):
        opening.open_weights(file, LoadOptions())
    assert asked == ["backends", "model"]


def test_init_params_are_ggmls() -> None:
    assert ctypes.sizeof(backends.InitParams) == 3 * ctypes.sizeof(ctypes.c_void_p)
