"""Which devices ONNX Runtime offers, how they are chosen, and how fast they are."""

import types
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest
from tiny_models import write_tiny_model

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware import speed as taking
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes._ort import devices, plugins, speed
from edgedec.runtimes._ort.devices import CPU, choose, find_devices, offers, put_into
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
    monkeypatch.setattr(plugins, "register", dict)


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
    assert {d.runtime for d in find_devices("optimum")} == {"optimum"}
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
    with pytest.raises(RuntimeUnavailable, match=words) as caught:
        choose(device, providers)
    assert "\n" not in str(caught.value)


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

    monkeypatch.setattr(plugins, "register", never)
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
    monkeypatch.setattr(plugins, "_packages", only_those(tmp_path))
    loaded = []

    def load(name: str, path: str) -> None:
        if "refused" in path:
            raise RuntimeError("another version of the interface")
        loaded.append((name, path))

    monkeypatch.setattr(ort, "register_execution_provider_library", load)
    plugins.register.cache_clear()
    try:
        failed = plugins.register()
        plugins.register()
        told = adapter.problems()
    finally:
        plugins.register.cache_clear()
    assert loaded == [("GoodExecutionProvider", "good.so")]
    assert told[0] == "onnxruntime_ep_broken does not load: no driver"
    assert failed == {
        "onnxruntime_ep_broken": "no driver",
        "onnxruntime_ep_refused": "another version of the interface",
    }


def only_those(folder: Path) -> Any:
    """Packages of a folder, found as all are; others may be installed here."""
    real = plugins._packages
    return lambda: [name for name in real() if (folder / f"{name}.py").exists()]


def test_the_adapter_passes_a_device_on(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    assert adapter.load(tmp_path, LoadOptions(device="cpu", threads=1)).info.vocab_size
    with pytest.raises(RuntimeUnavailable, match="no device 'card0'"):
        adapter.load(tmp_path, LoadOptions(device="card0", threads=1))


# -- speed --------------------------------------------------------------------------------------


def test_the_processor_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "affordable", lambda each, free: 1)
    monkeypatch.setattr(taking, "WIDTHS", (8,))
    first = find_devices("onnx")[0]
    found = registry.adapter("onnx").measure(first, 1)
    assert found.weights == "f32"
    for rate in (found.bytes_per_second, found.int4_bytes_per_second):
        assert rate is not None
        assert 1e7 < rate < 1e13
    assert found.int4_flops is not None
    assert found.flops > found.bytes_per_second / 4  # eight rows compute more than one


def test_wrong_numbers_are_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "affordable", lambda each, free: 1)
    monkeypatch.setattr(taking, "WIDTHS", (8,))
    real = speed.open_session

    def wrong(*args: Any) -> Any:
        session = real(*args)
        return types.SimpleNamespace(run=lambda *a: [session.run(*a)[0] * 1.5])

    monkeypatch.setattr(speed, "open_session", wrong)
    with pytest.raises(RuntimeUnavailable, match=r"cpu .*its numbers are wrong"):
        speed.measure(find_devices("onnx")[0], 1)


def test_a_device_that_cannot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise RuntimeError("no backend\nfor this device")

    monkeypatch.setattr(ort, "InferenceSession", fails)
    with pytest.raises(RuntimeUnavailable) as caught:
        speed.measure(find_devices("onnx")[0], 1)
    assert str(caught.value) == f"cpu ({CPU}) cannot compute a product: no backend"
    gone = Device("onnx", "openvino:gpu7", "gpu", "", "OpenVINOExecutionProvider")
    with pytest.raises(RuntimeUnavailable, match=r"in this onnxruntime|openvino:gpu7"):
        speed.measure(gone, 1)


def test_a_card_without_halves_is_taken_with_singles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for the card; its float16 product is said to be missing."""
    monkeypatch.setattr(taking, "affordable", lambda each, free: 1)
    monkeypatch.setattr(taking, "WIDTHS", (8,))
    processor = offers()[0]
    card = devices.Offer(Device("onnx", "card", "gpu", "", CPU), processor.handle)
    monkeypatch.setattr(speed, "choose", lambda *_: [card])
    real = speed._run

    def run(offer: Any, threads: int, chain: Any) -> Any:
        if any(values.dtype.name == "float16" for values in chain.weights.values()):
            raise speed.CannotCompute("no halves")
        return real(offer, threads, chain)

    monkeypatch.setattr(speed, "_run", run)
    found = speed.measure(card.device, 1)
    # Four bits need no halves: their scales and activations may be singles.
    assert found.weights == "f32"
    assert found.int4_flops is not None
    monkeypatch.setattr(speed, "_run", real)
    assert speed.measure(card.device, 1).weights == "f16"


def test_without_four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(weights: str, count: int, rows: int) -> taking.Run:
        if weights == "int4":
            raise taking.CannotCompute("no such product")
        return taking.Run(0.5, 100, 300 * rows)

    card = Device("onnx", "card", "gpu", "")
    assert taking.take_speed(card, timed) == taking.Speed(200, 600 * 64, "f16")


def test_the_first_reason_is_told() -> None:
    def timed(weights: str, count: int, rows: int) -> taking.Run:
        raise taking.CannotCompute(f"not in {weights}")

    with pytest.raises(taking.CannotCompute, match=r"^not in f16$"):
        taking.take_speed(Device("onnx", "card", "gpu", ""), timed)


# -- how times are taken ------------------------------------------------------------------------


class Clock:
    """Time that passes when something runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
        self.now, self.runs, self.seconds = 0.0, 0, seconds
        monkeypatch.setattr(taking, "perf_counter", lambda: self.now)

    def run(self) -> None:
        self.now += self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1


def test_the_median_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [0.09, 0.01, 0.5, 0.02, 0.02])
    assert taking.typical_seconds(clock.run, 0.1) == pytest.approx(0.02)


def test_slow_devices_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [5.0])
    assert taking.typical_seconds(clock.run, 0.1) == 5.0
    assert clock.runs == 2
    fast = Clock(monkeypatch, [1e-6])
    taking.typical_seconds(fast.run, 0.1)
    assert fast.runs <= 51


def test_peak_is_the_best_width() -> None:
    asked: list[int] = []

    def with_rates(rates: dict[int, float]) -> float:
        asked.clear()

        def timed(rows: int) -> taking.Run:
            asked.append(rows)
            return taking.Run(0.01, 0, int(rates[rows] * 100))

        return taking.peak(timed)

    assert with_rates({64: 10, 256: 30, 1024: 20}) == pytest.approx(3000_00 * 1.0)
    assert asked == [64, 256, 1024]
    assert with_rates({64: 10, 256: 10.5, 1024: 99}) == pytest.approx(105_000)
    assert asked == [64, 256]  # wider ones promise no more
    taking.peak(lambda rows: (asked.append(rows), taking.Run(5.0, 0, 1))[1])
    assert asked == [64, 256, 64]


def test_memory_bounds_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taking.affordable(16 << 20, free=10 << 30) == 16
    assert taking.affordable(16 << 20, free=512 << 20) == 4
    assert taking.affordable(16 << 20, free=1) == 1
    from edgedec.hardware.machine import Memory

    monkeypatch.setattr(taking, "memory", lambda: Memory(1 << 40, 256 << 20, 1 << 30))
    assert taking.affordable(16 << 20) == 2
    monkeypatch.setattr(taking, "memory", lambda: Memory(None, None, None))
    assert taking.affordable(16 << 20) == 16
