"""A place that crashes, hangs, refuses or talks nonsense is only a place that cannot be used."""

import json
from pathlib import Path

import pytest

from edgedec.profiling import children
from edgedec.profiling.children import MeasurementJob
from edgedec.records.place import Place


def job(how: str) -> MeasurementJob:
    return MeasurementJob("target", how, Place("onnx", "NPU"), (1, 2), (32,), (1, 2), 0.1)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("crash", "it crashed with SIGSEGV: it gave no reason"),
        ("refuse", "no such device here"),
        ("silent", "it gave no reason"),
        ("raises", "ZeroDivisionError: by nothing"),
        ("nothing", "it ended without a result"),
        ("garbage", "it ended without a result"),
    ],
)
def test_a_child_that_fails_makes_a_place_that_cannot_be_used(how: str, reason: str) -> None:
    found = children.measure(job(how), 60, module="failing_child")
    assert found.logits is None
    assert not found.measured.parity.usable
    assert found.measured.parity.reason == reason
    assert found.measured.place == Place("onnx", "NPU")


def test_a_child_that_hangs_is_ended() -> None:
    found = children.measure(job("hang"), 1, module="failing_child")
    assert found.measured.parity.reason == "it took longer than 1 s"


def test_what_a_child_says_never_moves_the_terminal() -> None:
    reason = children.measure(job("escapes"), 60, module="failing_child").measured.parity.reason
    assert "boo" in reason
    assert "\x1b" not in reason
    assert "\x07" not in reason


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    children.measure(job("crash"), 60, module="failing_child")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x00" * 100)
    plain = MeasurementJob(
        "target", str(file), Place("onnx", threads=1), (1, 2), (32,), (1, 2), 0.1
    )
    reason = children.measure(plain, 60).measured.parity.reason
    assert str(file) in reason
    assert "\n" not in reason
    assert json.dumps(reason)
