"""Runs commands of other environments: a limit on their time, and why they ended, in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgedec._support.child import MAX_OUTPUT_BYTES, last_line, signal_name
from edgedec._support.fields import json_object
from edgedec._support.files import last_bytes

_CHILD = Path(__file__).with_name("_child.py")
CRASH, HANG, GARBAGE = "crash", "hang", "garbage"
# Nothing is fetched while a peer is measured, and no warning hides its last line.
_QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


class Failed(Exception):
    """A command failed.

    Attributes:
        kind: crash, hang or garbage; the message says why, in one line.

    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def execute(
    command: Sequence[str | Path],
    log: Path,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command; its output goes to ``log``.

    It is killed with all its children when it takes too long or this process is interrupted.

    Raises:
        Failed: it did not end well.

    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Failed(CRASH, str(error)) from None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(HANG, f"no end within {limit_s:g} s") from None
        finally:
            _end(process)
    if code != 0:
        with log.open("rb") as file:
            said = last_line(last_bytes(file, MAX_OUTPUT_BYTES))
        reason = f"{signal_name(-code)}: {said}" if code < 0 else said
        raise Failed(CRASH, reason)


def ask(
    python: Path,
    peer: Path,
    request: Mapping[str, Any],
    log: Path,
    limit_s: float,
    *,
    within: Sequence[str] = (),
) -> dict[str, Any]:
    """Run one task of a peer in its environment; return its answer, or raise Failed.

    The command begins with ``within``, which may put limits on it.
    """
    with tempfile.TemporaryDirectory() as name:
        asked, answer = Path(name, "request.json"), Path(name, "answer.json")
        asked.write_text(json.dumps(request), "utf-8")
        execute([*within, python, "-I", _CHILD, peer, asked, answer], log, limit_s, _QUIET)
        try:
            found = json_object(answer.read_bytes())
        except OSError:
            raise Failed(GARBAGE, "it ended without an answer") from None
    if found is None:
        raise Failed(GARBAGE, "its answer is not a JSON object")
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started, and wait for it."""
    if process.poll() is None or sys.platform != "win32":
        with suppress(OSError):  # all of them have ended
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
    process.wait()
