"""Runtimes are found by name."""

import importlib

import pytest

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.runtimes import registry


def test_found_by_name() -> None:
    assert "onnx" in registry.names()
    assert "registry" not in registry.names()
    assert callable(registry.adapter("onnx").load)
    assert any("CPUExecutionProvider" in line for line in registry.adapter("onnx").devices())


def test_an_unknown_name() -> None:
    with pytest.raises(InputError, match="onnx"):
        registry.adapter("../evil")


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="coremltools")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RuntimeUnavailable, match="pip install coremltools"):
        registry.adapter("onnx")
