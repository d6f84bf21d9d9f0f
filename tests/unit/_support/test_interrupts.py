"""Ctrl-C while compiled modules are imported: at the end, not amid their C++."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from edgedec._support.interrupts import held_back

pytest.importorskip("onnx", reason="onnx is not installed: extra export")

# onnx is interrupted while it is imported; then it is imported all the same.
INTERRUPTED = """
import signal, sys
from pathlib import Path
from edgedec.export import ExportOptions, export_bundle
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "onnx":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
try:
    export_bundle(ExportOptions(Path("nothing"), Path("nowhere")))
except KeyboardInterrupt:
    print("interrupted", "edgedec.export.bundling" in sys.modules)
"""


def test_an_export_is_interrupted_when_its_modules_are_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "interrupted True\n"


def test_an_interrupt_comes_at_the_end_and_once() -> None:
    reached = []

    def interrupted() -> None:
        with held_back():
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached == ["the end"]
    with held_back():
        pass


def test_an_error_goes_before_an_interrupt() -> None:
    def failing() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            raise ModuleNotFoundError

    with pytest.raises(ModuleNotFoundError):
        failing()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_another_thread_may_do_it_too() -> None:
    done = []

    def work() -> None:
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
