"""Which bundles a device takes is tried with a tiny decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgedec._support.sandbox import Stopped
from edgedec.doctor import forms
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device
from edgedec.runtimes import registry

CPU, CARD = (Device("onnx-static", name, "cpu", "") for name in ("cpu", "card"))


class Adapter:
    """Loads by the processor's adapter, whatever device is asked for."""

    def __init__(self, runtime: str, refuses: str = "") -> None:
        self._inner, self._refuses = registry.adapter(runtime), refuses

    def load(self, path: Any, options: Any) -> Any:
        if self._refuses:
            raise RuntimeUnavailable(f"{path}/static-1.onnx: {self._refuses}")
        return self._inner.load(path, forms.LoadOptions(threads=1))


@pytest.mark.parametrize("runtime", ["onnx", "onnx-static"])
def test_a_device_that_takes_a_form(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = Adapter(runtime)
    monkeypatch.setattr(registry, "adapter", lambda name: adapter)
    assert forms.load_probe(Device(runtime, "card", "gpu", "")) is None


def test_one_that_does_not_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = Adapter("onnx-static", "it computes other numbers")
    monkeypatch.setattr(registry, "adapter", lambda name: adapter)
    assert forms.load_probe(CARD) == "it computes other numbers"


def test_without_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> None:
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")

    monkeypatch.setattr(forms, "_WRITERS", {"onnx-static": missing})
    assert "not tried: this needs onnx, which is not installed" in str(forms.load_probe(CARD))


@pytest.mark.parametrize(
    ("device", "asked"),
    [(CPU, False), (CARD, True), (Device("llamacpp", "card", "gpu", ""), False)],
)
def test_only_other_devices_are_tried(
    device: Device, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(forms, "ask_once", lambda *args, **more: calls.append(args))
    assert forms.refusal(device) is None
    assert bool(calls) == asked


def test_a_driver_that_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: object, **more: object) -> Callable[..., None]:
        raise Stopped("it ended by signal 11")

    monkeypatch.setattr(forms, "ask_once", stopped)
    assert forms.refusal(CARD) == "onnx-static card: it ended by signal 11"


def test_the_child_answers() -> None:
    reason = forms.refusal(Device("onnx-static", "no such device", "npu", ""))
    assert reason is not None
    assert "no device 'no such device' in this onnxruntime" in reason
