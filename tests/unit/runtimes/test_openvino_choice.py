"""OpenVINO's kernels are taken without being asked for where they are faster, and only there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny_model

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.machine import Memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.openvino import choice
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

Times = Callable[[float, float], list[int]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice, "LARGE_BYTES", 0)
    write_tiny_model(tmp_path / "model", "int4")
    return tmp_path / "model"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """Sets OpenVINO's and ONNX Runtime's times; the returned list grows with each measurement."""

    def set_times(theirs: float, ours: float) -> list[int]:
        given, asked = iter([theirs, ours]), []

        def seconds(load: Any) -> float:
            asked.append(1)
            return next(given)

        monkeypatch.setattr(choice, "_seconds", seconds)
        return asked

    return set_times


def quickest(folder: Path, **options: Any) -> str | None:
    return registry.quickest("onnx", folder, LoadOptions(threads=1, **options))


@pytest.mark.parametrize(
    ("theirs", "ours", "found"), [(1.0, 1.2, "openvino"), (1.0, 1.05, None), (1.2, 1.0, None)]
)
def test_it_is_taken_where_it_gains_a_tenth_and_measured_once(
    folder: Path, times: Times, theirs: float, ours: float, found: str | None
) -> None:
    asked = times(theirs, ours)
    assert [quickest(folder), quickest(folder)] == [found, found]
    assert len(asked) == 2
    write_tiny_model(folder, "int4", seed=1)
    times(1.2, 1.0)
    assert quickest(folder) is None


def test_both_are_really_measured(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert quickest(folder) in (None, "openvino")
    assert "measuring which kernels compute" in caplog.text


def test_a_small_model_is_not_measured(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = times(1.0, 2.0)
    monkeypatch.setattr(choice, "LARGE_BYTES", 1 << 30)
    assert quickest(folder) is None
    assert not asked


def test_nothing_is_loaded_into_little_memory(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = times(1.0, 2.0)
    monkeypatch.setattr(choice, "memory", lambda: Memory(1 << 30, 1000, None))
    assert quickest(folder) is None
    assert not asked


def test_streamed_weights_stay(folder: Path, times: Times) -> None:
    asked = times(1.0, 2.0)
    assert quickest(folder, weight_memory=1 << 20) is None
    assert not asked


def test_what_openvino_cannot_run_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> OpenVinoModel:
        raise RuntimeUnavailable("no such operator")

    monkeypatch.setattr(OpenVinoModel, "compile", refuse)
    assert quickest(folder) is None
