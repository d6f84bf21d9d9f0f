"""Ends a process with SIGKILL while it writes, at a moment that a test chooses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import LIMIT_S

PARTIAL = ".edgedec-"


def child(source: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start Python with this source in a process of its own, with this test's paths."""
    paths = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip


def partials(folder: Path) -> list[Path]:
    """Return what is being written in a folder, or was not finished."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.startswith(PARTIAL)]


def kill_when(process: subprocess.Popen[bytes], writing: Callable[[], bool]) -> None:
    """Kill a process while a condition holds; it is stopped first, so that it still does."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            _, errors = process.communicate()
            pytest.fail(f"it ended first: {errors.decode()[-2000:]}")
        if writing():
            process.send_signal(signal.SIGSTOP)
            if writing():
                process.kill()
                process.communicate()
                return
            process.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    pytest.fail("it was never seen writing")


def age(folder: Path) -> None:
    """Make everything in a folder look as if it was written an hour ago."""
    long_ago = time.time() - 3600
    for path in _all(folder):
        os.utime(path, (long_ago, long_ago))


def _all(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _all(path)
        yield path
