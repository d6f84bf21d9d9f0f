"""OpenVINO's kernels are taken without being asked for where they are faster, and only there."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny_model

from edgedec.decoding.policy import CostCurve
from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.hardware.machine import Memory
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import choice, model, places
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

Seconds = list[float]
Times = Callable[..., list[int]]
WIDTHS = (1, 4, 8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice, "LARGE_BYTES", 0)
    write_tiny_model(tmp_path / "model", "int4")
    return tmp_path / "model"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """Sets OpenVINO's, ONNX Runtime's and the draft's times.

    The returned list grows with each measurement.
    """

    def set_times(theirs: Seconds, ours: Seconds, draft_s: float = 0.01) -> list[int]:
        given, asked = iter([theirs, ours]), []

        def costs(model: OnnxModel, widths: Sequence[int] = WIDTHS) -> CostCurve:
            model.close()
            asked.append(1)
            return CostCurve(tuple(widths), tuple([draft_s] if widths == (1,) else next(given)))

        monkeypatch.setattr(choice, "_costs", costs)
        return asked

    return set_times


def quickest(folder: Path, draft: Path | None = None, **options: Any) -> str | None:
    return registry.quickest("onnx", folder, LoadOptions(threads=1, **options), draft)


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
    measure, found = choice._costs, []

    def costs(model: OnnxModel, **widths: Any) -> CostCurve:
        found.append(measure(model, **widths))
        return found[-1]

    monkeypatch.setattr(choice, "_costs", costs)
    with caplog.at_level(logging.WARNING):
        assert quickest(folder) in (None, "openvino")
        assert quickest(folder, draft=folder) in (None, "openvino")
    assert "measuring which kernels compute" in caplog.text
    widths = (1, 4, 8, 17)
    assert [one.widths for one in found] == [widths, widths, (1,), widths, widths]
    assert min(min(one.seconds) for one in found) > 0


# Wide passes are cheap on OpenVINO, and one row is slow.
CHEAP_WIDE = [1.3, 1.35, 1.4], [1.0, 1.8, 2.8]
# One row is the whole difference.
CHEAP_LONE = [0.6, 1.6, 2.8], [1.0, 1.8, 2.8]


@pytest.mark.parametrize(
    ("costs", "draft_s", "alone", "drafted"),
    [
        (CHEAP_WIDE, 0.01, None, "openvino"),
        (CHEAP_WIDE, 0.9, None, None),  # nothing is drafted by a draft that is hardly cheaper
        (CHEAP_LONE, 0.01, "openvino", "openvino"),
        (([1.0, 1.0, 2.0], [1.0, 1.7, 2.0]), 0.9, "openvino", None),
        (([1.6, 1.6, 1.6], [1.0, 3.0, 6.0]), 0.01, None, None),  # texts without drafts lose much
        (([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), 0.01, None, None),
    ],
)
def test_with_a_draft_model_the_expected_speed_decides_and_not_single_passes(
    folder: Path,
    times: Times,
    costs: tuple[Seconds, Seconds],
    draft_s: float,
    alone: str | None,
    drafted: str | None,
) -> None:
    times(*costs)
    assert quickest(folder) == alone
    asked = times(*costs, draft_s)
    assert [quickest(folder, draft=folder) for _ in range(2)] == [drafted, drafted]
    assert len(asked) == 3  # measured with the draft, and once


def test_another_draft_model_is_measured_again(folder: Path, times: Times, tmp_path: Path) -> None:
    times(*CHEAP_WIDE, 0.01)
    assert quickest(folder, draft=folder) == "openvino"
    write_tiny_model(tmp_path / "other", "int4", seed=2)
    asked = times(*CHEAP_WIDE, 0.9)
    assert quickest(folder, draft=tmp_path / "other") is None
    assert len(asked) == 3


def test_exact_text_is_not_given_up_for_it(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "find_padding", lambda *_: None)
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
    def fail(model: OnnxModel) -> CostCurve:
        model.close()
        raise PassFailed("out of memory")

    monkeypatch.setattr(choice, "_costs", fail)
    assert quickest(folder) is None
    times([1, 1, 1], [2, 2, 2])
    assert quickest(folder) == "openvino"


@pytest.mark.parametrize("content", [b"no graph", None])
def test_a_draft_that_cannot_be_read_does_not_count(
    folder: Path, times: Times, content: bytes | None
) -> None:
    draft = folder.parent / "damaged" / "model.onnx"
    draft.parent.mkdir()
    if content is not None:
        draft.write_bytes(content)
    asked = times(*CHEAP_WIDE)
    assert quickest(folder, draft=draft) is None  # as without one
    assert len(asked) == 2


def test_a_draft_that_does_not_load_costs_no_compilation(
    folder: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> OnnxModel:
        raise RuntimeUnavailable("no such operator")

    with monkeypatch.context() as patch:
        patch.setattr(choice, "_draft", refuse)
        asked = times(*CHEAP_WIDE)
        assert quickest(folder, draft=folder) is None
        assert not asked
    assert quickest(folder, draft=folder) == "openvino"  # nothing was remembered


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
