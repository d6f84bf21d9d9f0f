"""Which devices ONNX Runtime offers, how they are chosen, and how fast they are."""

import types
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest
from tiny_models import write_tiny_model

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort import devices
from edgedec.runtimes._ort.devices import CPU, choose, find_devices, put_into
from edgedec.runtimes.onnx import adapter


def handle(
    provider: str, kind: str, vendor: str = "Maker", metadata: dict[str, str] | None = None
) -> Any:
    """As ``onnxruntime.get_ep_devices`` gives them."""
    hardware = types.SimpleNamespace(
        type=f"OrtHardwareDeviceType.{kind}", vendor=vendor, metadata={}, device_id=0
    )
    return types.SimpleNamespace(
        ep_name=provider, ep_vendor="Other", ep_metadata=metadata or {}, device=hardware
    )


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a plugin for processor, graphics and neural processor, and two older providers."""
    openvino, webgpu = "OpenVINOExecutionProvider", "WebGpuExecutionProvider"
    here = [
        handle(openvino, "CPU", metadata={"version": "1.8"}),
        handle(openvino, "GPU", metadata={"FULL_DEVICE_NAME": "Iris"}),
        handle(openvino, "NPU"),
        handle(f"{openvino}.AUTO", "CPU"),
        handle(webgpu, "GPU"),
        handle(webgpu, "GPU"),
        handle(CPU, "CPU"),
    ]
    names = ["AzureExecutionProvider", "TensorrtExecutionProvider", "CoreMLExecutionProvider"]
    names += [CPU, openvino, f"{openvino}.AUTO", webgpu]
    monkeypatch.setattr(ort, "get_ep_devices", lambda: here)
    monkeypatch.setattr(ort, "get_available_providers", lambda: names)
    monkeypatch.setattr(devices, "register", dict)


@pytest.mark.usefixtures("laptop")
def test_every_device_once() -> None:
    found = [(d.name, d.kind, d.provider) for d in find_devices("onnx")]
    assert found == [
        ("cpu", "cpu", CPU),
        ("openvino:cpu", "cpu", "OpenVINOExecutionProvider"),
        ("openvino:gpu0", "gpu", "OpenVINOExecutionProvider"),
        ("openvino:npu0", "npu", "OpenVINOExecutionProvider"),
        ("webgpu:gpu0", "gpu", "WebGpuExecutionProvider"),
        ("webgpu:gpu1", "gpu", "WebGpuExecutionProvider"),
        ("tensorrt", "gpu", "TensorrtExecutionProvider"),
        ("coreml", "npu", "CoreMLExecutionProvider"),
    ]
    assert {d.runtime for d in find_devices("onnx-hub")} == {"onnx-hub"}
    texts = {d.name: d.description for d in find_devices("onnx")}
    assert texts["openvino:gpu0"].startswith("Iris (openvino plugin, onnxruntime ")
    assert texts["webgpu:gpu0"].startswith("by Maker (")


@pytest.mark.usefixtures("laptop")
def test_choice() -> None:
    def chosen(device: str | None, *providers: str) -> list[tuple[str, str]]:
        return [(offer.device.name, offer.provider) for offer in choose(device, providers)]

    openvino = "OpenVINOExecutionProvider"
    assert chosen(None) == chosen("cpu") == chosen(None, CPU) == [("cpu", CPU)]
    assert chosen("webgpu:gpu1") == [("webgpu:gpu1", "WebGpuExecutionProvider")]
    # A provider alone is the processor's where it can be, as a place on the processor has it.
    assert chosen(None, openvino) == chosen("cpu", openvino) == [("openvino:cpu", openvino)]
    assert chosen("openvino:cpu") == chosen(None, openvino)
    assert chosen("openvino:npu0", openvino) == [("openvino:npu0", openvino)]
    assert chosen(None, "WebGpuExecutionProvider") == [("webgpu:gpu0", "WebGpuExecutionProvider")]
    assert chosen(None, openvino, CPU) == [("openvino:cpu", openvino), ("cpu", CPU)]
    assert chosen("openvino:gpu0", openvino, CPU)[1] == ("cpu", CPU)


@pytest.mark.usefixtures("laptop")
@pytest.mark.parametrize(
    ("device", "providers", "words"),
    [
        ("webgpu:gpu2", (), "webgpu:gpu2.*it has cpu .*webgpu:gpu1"),
        ("openvino:gpu1", ("OpenVINOExecutionProvider",), "of OpenVINO.*openvino:npu0"),
        (None, ("QNNExecutionProvider",), "'QNNExecutionProvider' is not in .*CoreML"),
        ("Vulkan0", (), "Vulkan0"),
        ("cpu", ("WebGpuExecutionProvider",), "no device 'cpu' of WebGpu"),
    ],
)
def test_a_device_that_is_gone(device: str | None, providers: tuple[str, ...], words: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=words):
        choose(device, providers)


class Options:
    """Session options that note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[list[Any], dict[str, str]]] = []

    def add_provider_for_devices(self, handles: list[Any], options: dict[str, str]) -> None:
        self.told.append((handles, options))


@pytest.mark.usefixtures("laptop")
def test_how_a_session_is_told() -> None:
    options = Options()
    assert put_into(options, choose(None, ()), 2) == [CPU]
    both = ("TensorrtExecutionProvider", CPU)
    assert put_into(options, choose(None, both), 2) == list(both)
    assert options.told == []
    assert put_into(options, choose("openvino:gpu0", ()), 2) == []
    ((handles, given),) = options.told
    assert [h.device.type for h in handles] == ["OrtHardwareDeviceType.GPU"]
    assert given == {}
    on_processor = Options()
    put_into(on_processor, choose(None, ("OpenVINOExecutionProvider", CPU)), 3)
    ((_, given),) = on_processor.told
    assert '"INFERENCE_NUM_THREADS": "3"' in given["load_config"]
    mixed = choose(None, ("TensorrtExecutionProvider", "WebGpuExecutionProvider"))
    with pytest.raises(InputError, match="cannot be combined"):
        put_into(options, mixed, 1)


def test_a_plain_choice_loads_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> dict[str, str]:
        raise AssertionError("a provider's package was loaded for the processor")

    monkeypatch.setattr(devices, "register", never)
    assert choose(None, ())[0].provider == choose("cpu", [CPU])[0].provider == CPU
    with pytest.raises(AssertionError):  # the control: the fixture does notice one
        choose("other", ())


def test_plugin_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there are registered, once; one that is broken says why and harms no other."""
    packages = {
        "onnxruntime_ep_good": "def get_ep_name(): return 'GoodExecutionProvider'\n"
        "def get_library_path(): return 'good.so'\n",
        "onnxruntime_ep_broken": "raise OSError('no driver\\nat all')\n",
        "onnxruntime_ep_refused": "def get_ep_name(): return 'RefusedExecutionProvider'\n"
        "def get_library_path(): return 'refused.so'\n",
        "onnxruntime_other": "raise AssertionError('not a provider')\n",
    }
    for name, text in packages.items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(devices, "_packages", only_those(tmp_path))
    loaded = []

    def load(name: str, path: str) -> None:
        if "refused" in path:
            raise RuntimeError("another version of the interface")
        loaded.append((name, path))

    monkeypatch.setattr(ort, "register_execution_provider_library", load)
    devices.register.cache_clear()
    try:
        failed = devices.register()
        devices.register()
        told = adapter.problems()
    finally:
        devices.register.cache_clear()
    assert loaded == [("GoodExecutionProvider", "good.so")]
    assert told[0] == "onnxruntime_ep_broken does not load: no driver"
    assert failed == {
        "onnxruntime_ep_broken": "no driver",
        "onnxruntime_ep_refused": "another version of the interface",
    }


def only_those(folder: Path) -> Any:
    """Packages of a folder, found as all are; others may be installed here."""
    real = devices._packages
    return lambda: [name for name in real() if (folder / f"{name}.py").exists()]


def test_the_adapter_passes_a_device_on(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    assert adapter.load(tmp_path, LoadOptions(device="cpu", threads=1)).info.vocab_size
    with pytest.raises(RuntimeUnavailable, match="no device 'card0'"):
        adapter.load(tmp_path, LoadOptions(device="card0", threads=1))
