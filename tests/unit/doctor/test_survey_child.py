"""Devices with drivers of their own are measured in a child process."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from edgedec.doctor import survey
from edgedec.doctor.survey import SurveyedDevice
from edgedec.hardware.device import Device, Speed

CARD = Device("onnx", "card", "gpu", "a card", "CardExecutionProvider", 100, 50)


@pytest.fixture
def in_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], SurveyedDevice]:
    """What comes of a card whose child runs this code when it is asked."""

    def found(code: str) -> SurveyedDevice:
        lines = ("import sys", "from edgedec._support import _confined_child", "def main(task):")
        body = textwrap.indent(code, "    ")
        module = "\n".join((*lines, body, "_confined_child.serve(main)"))
        (tmp_path / "some_driver.py").write_text(module)
        monkeypatch.setattr(survey, "_CHILD", "some_driver")
        return survey._with_speed(SurveyedDevice(CARD, None, 0))

    monkeypatch.syspath_prepend(tmp_path)
    return found


def test_it_may_end_its_process(in_child: Callable[[str], SurveyedDevice]) -> None:
    found = in_child("import os; os.abort()")
    assert found.problem == "it crashed with SIGABRT: it gave no reason"
    assert found.speed is None
    assert in_child("import os; os._exit(0)").problem is not None


def test_it_may_talk(in_child: Callable[[str], SurveyedDevice]) -> None:
    answer = {
        "bytes_per_second": 1.0, "flops": 2.0, "weights": "f16", "int4_bytes_per_second": None,
        "int4_flops": None,
    }  # fmt: skip
    assert in_child(f"print('driver 1.2'); return {answer}").speed == Speed(1.0, 2.0, "f16")
    refusing = "from edgedec.errors import RuntimeUnavailable; raise RuntimeUnavailable('no card')"
    assert in_child(refusing).problem == "no card"
    del answer["flops"]
    assert "flops" in str(in_child(f"return {answer}").problem)


def test_it_may_hang(
    in_child: Callable[[str], SurveyedDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert survey._PATIENCE_S > 60  # drivers may compile their kernels the first time
    monkeypatch.setattr(survey, "_PATIENCE_S", 0.3)
    assert in_child("import time; time.sleep(60)").problem == "it took longer than 0.3 s"


def test_a_real_child_answers() -> None:
    """Of a device that is gone, and of one that is there under the name of another."""
    gone = survey._with_speed(SurveyedDevice(CARD, None, 0))
    assert gone.problem is not None
    assert "'CardExecutionProvider' is not in this onnxruntime: it has cpu" in gone.problem
    processor = Device("onnx", "cpu", "cpu", "", "CPUExecutionProvider")
    speed = survey._in_child(SurveyedDevice(processor, None, 1))
    assert speed.bytes_per_second > 1e7
