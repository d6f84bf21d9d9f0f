"""SIGTERM ends an export as Ctrl-C does: nothing half-written stays."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from tiny_models import tiny_checkpoint

from edgedec.cli import _terminal, main
from edgedec.export import formats


def exported(folder: Path) -> int:
    target = tiny_checkpoint(folder / "model")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(target), "--out", str(folder / "out" / "bundle"), "--no-calibrated"])
    return int(ended.value.code or 0)


def test_an_export_that_is_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    exporter = formats.exporter("onnx")
    write, seen = exporter.write, list[str]()

    def terminated(*given: object) -> None:
        write(*given)  # type: ignore[arg-type]
        seen.extend(path.name for path in (tmp_path / "out").iterdir())
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(exporter, "write", terminated)
    assert exported(tmp_path) == 128 + signal.SIGTERM
    assert len(seen) == 1  # the folder that grew
    assert list((tmp_path / "out").iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_threads_have_no_signals() -> None:
    ran = []

    def run() -> None:
        with _terminal.ended_by_sigterm():
            ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ran == [True]
