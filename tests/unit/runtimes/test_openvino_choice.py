"""OpenVINO's kernels are taken without being asked for where they are faster, and only there."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import write_tiny_model

from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.hardware.machine import Memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import choice, invariance, places
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

Seconds = list[float]
Times = Callable[[Seconds, Seconds], list[int]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice, "LARGE_BYTES", 0)
    write_tiny_model(tmp_path / "model", "int4")
    return tmp_path / "model"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """Sets OpenVINO's and ONNX Runtime's times; the returned list grows with each measurement."""

    def set_times(theirs: Seconds, ours: Seconds) -> list[int]:
        given, asked = iter([theirs, ours]), []

        def seconds(model: OnnxModel) -> Seconds:
            model.close()
            asked.append(1)
            return next(given)

        monkeypatch.setattr(choice, "_seconds", seconds)
        return asked

    return set_times


def quickest(folder: Path, **options: Any) -> str | None:
    return registry.quickest("onnx", folder, LoadOptions(threads=1, **options))


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ([1, 1, 1], [1, 1, 2], "openvino"),
        ([1, 1, 1], [1, 1, 1.2], None),
        ([1.3, 1, 1], [1, 1, 3], None),
        ([1, 1, 2], [1, 1, 1], None),
    ],
)
def test_it_is_taken_where_it_gains_and_measured_once(
    folder: Path, times: Times, theirs: Seconds, ours: Seconds, found: str | None
) -> None:
    asked = times(theirs, ours)
    assert [quickest(folder), quickest(folder)] == [found, found]
    assert len(asked) == 2
    write_tiny_model(folder, "int4", seed=1)
    asked = times([1, 1, 1], [1, 1, 1])
    assert quickest(folder) is None
    assert len(asked) == 2


def test_both_are_really_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measure, found = choice._seconds, []
    monkeypatch.setattr(choice, "_seconds", lambda model: found.append(measure(model)) or found[-1])
    with caplog.at_level(logging.WARNING):
        assert quickest(folder) in (None, "openvino")
    assert "measuring which kernels compute" in caplog.text
    assert np.shape(found) == (2, 3)
    assert np.min(found) > 0


def test_exact_text_is_not_given_up_for_it(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariance, "find_padding", lambda *_: None)
    times([1, 1, 1], [2, 2, 2])
    write_tiny_model(folder, "int4", own_rows=True)
    assert OnnxModel.load(folder, threads=1).capabilities.batch_invariant
    assert quickest(folder) is None


def test_a_small_model_is_not_measured(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = times([1, 1, 1], [2, 2, 2])
    monkeypatch.setattr(choice, "LARGE_BYTES", 1 << 30)
    assert quickest(folder) is None
    assert not asked


def test_nothing_is_loaded_into_little_memory(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = times([1, 1, 1], [2, 2, 2])
    with monkeypatch.context() as patch:
        patch.setattr(choice, "memory", lambda: Memory(1 << 30, 1000, None))
        assert quickest(folder) is None
    assert not asked
    assert quickest(folder) == "openvino"


def test_streamed_weights_stay(folder: Path, times: Times) -> None:
    asked = times([1, 1, 1], [2, 2, 2])
    assert quickest(folder, weight_memory=1 << 20) is None
    assert not asked


def test_what_openvino_cannot_run_stays_and_is_tried_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*_: Any, **__: Any) -> OpenVinoModel:
        tried.append(1)
        raise RuntimeUnavailable("no such operator")

    monkeypatch.setattr(OpenVinoModel, "compile", refuse)
    assert [quickest(folder), quickest(folder)] == [None, None]
    assert len(tried) == 1


def test_a_pass_that_fails_is_not_remembered(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: OnnxModel) -> Seconds:
        model.close()
        raise PassFailed("out of memory")

    monkeypatch.setattr(choice, "_seconds", fail)
    assert quickest(folder) is None
    times([1, 1, 1], [2, 2, 2])
    assert quickest(folder) == "openvino"


def test_a_package_that_does_not_load_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "edgedec.runtimes.onnx.openvino.model", None)
    assert quickest(folder) is None
    with pytest.raises(RuntimeUnavailable, match="openvino does not load: "):
        registry.load("onnx", folder, LoadOptions(threads=1, device="openvino"))


def test_a_folder_of_its_name_is_not_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert quickest(folder) is None
    assert places.find_devices() == []
