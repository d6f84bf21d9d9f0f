"""Devices with drivers of their own are measured in a child process."""

import json
import sys

import pytest

from edgedec._support import isolated
from edgedec.doctor import survey
from edgedec.doctor.survey import Found
from edgedec.hardware.device import Device, Speed

CARD = Device("onnx", "card", "gpu", "a card", "CardExecutionProvider", 100, 50)


def in_child(monkeypatch: pytest.MonkeyPatch, code: str) -> Found:
    """What comes of a card whose child runs this code."""
    monkeypatch.setattr(isolated, "python", lambda *_: [sys.executable, "-c", code])
    return survey._with_speed(Found(CARD, None, 0))


def saying(record: dict[str, object]) -> str:
    return f"print('driver 1.2'); print({json.dumps(record)!r})"


def test_it_may_end_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_child(monkeypatch, "import os; os._exit(134)")
    assert found.problem == "its driver ended the process (exit code 134)"
    assert found.speed is None
    assert in_child(monkeypatch, "print('nothing')").problem is not None


def test_it_may_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {
        "bytes_per_second": 1.0, "flops": 2.0, "weights": "f16", "int4_bytes_per_second": None,
        "int4_flops": None,
    }  # fmt: skip
    assert in_child(monkeypatch, saying(answer)).speed == Speed(1.0, 2.0, "f16")
    assert in_child(monkeypatch, saying({"problem": "no card"})).problem == "no card"
    del answer["flops"]
    assert "flops" in str(in_child(monkeypatch, saying(answer)).problem)


def test_it_may_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert survey._PATIENCE_S > 60  # drivers may compile their kernels the first time
    monkeypatch.setattr(survey, "_PATIENCE_S", 0.3)
    found = in_child(monkeypatch, "import time; time.sleep(60)")
    assert found.problem == "no answer within 0.3 s"


def test_a_real_child_answers() -> None:
    """Of a device that is gone, and of one that is there under the name of another."""
    gone = survey._with_speed(Found(CARD, None, 0))
    assert gone.problem is not None
    assert "'CardExecutionProvider' is not in this onnxruntime: it has cpu" in gone.problem
    processor = Device("onnx", "cpu", "cpu", "", "CPUExecutionProvider")
    speed = survey._in_child(Found(processor, None, 1))
    assert speed.bytes_per_second > 1e7
