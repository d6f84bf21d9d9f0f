"""Runtimes are found by name."""

import importlib

import pytest

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.runtimes import registry


def test_found_by_name() -> None:
    assert "onnx" in registry.names()
    assert "registry" not in registry.names()
    assert callable(registry.adapter("onnx").load)
    first = registry.adapter("onnx").devices()[0]
    assert (first.runtime, first.name, first.kind) == ("onnx", "cpu", "cpu")
    assert first.provider == "CPUExecutionProvider"


def test_an_unknown_name() -> None:
    with pytest.raises(InputError, match="onnx"):
        registry.adapter("../evil")


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="coremltools")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RuntimeUnavailable, match="install coremltools"):
        registry.adapter("onnx")
