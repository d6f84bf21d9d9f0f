"""Runs the tests of one mutation, and says whether they noticed.

A shared machine is slow at times, so that time alone decides nothing: a test that fails is run
again, and a run that takes too long is compared with the same run without the mutation.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

# Processor seconds, and seconds on the wall, that tests may take: so many, and so many times
# what the map says.
_CPU_S, _CPU_TIMES = 60, 6
_WALL_S, _WALL_TIMES = 240, 10
_TIMED_OUT = "Timeout (>"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a mutation.

    Attributes:
        verdict: ``killed``, ``survived``, ``uncovered`` (no test runs it) or ``unknown`` (too
            slow with and without it).
        why: the test that failed, or what else ended the run.
        seconds: on the wall.

    """

    verdict: str
    why: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict:
        """For a record."""
        return {**asdict(self), "seconds": round(self.seconds, 1)}


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of pytest: how it ended, ``passed``, ``failed``, ``broken`` or ``slow``."""

    end: str
    test: str = ""


class Runner:
    """Runs tests in a copy of the tree with a mutation, and in a clean one."""

    def __init__(self, changed: Path, clean: Path) -> None:
        self._changed, self._clean = changed, clean

    def judge(self, tests: dict[str, float]) -> Outcome:
        """Return whether one of these tests fails; each comes with the seconds it takes."""
        began, left = perf_counter(), dict(tests)
        while left:
            run = _run(self._changed, left)
            if run.end == "slow":
                verdict, why = self._compare({run.test: 1.0} if run.test else left)
            elif run.end == "failed" and not self._fails_again(run.test):
                left.pop(run.test, None)  # a test that fails by chance says nothing
                continue
            else:
                verdict = "survived" if run.end == "passed" else "killed"
                why = run.test or ("" if run.end == "passed" else run.end)
            return Outcome(verdict, why, perf_counter() - began)
        return Outcome("survived", "", perf_counter() - began)

    def _fails_again(self, test: str) -> bool:
        """With the mutation, and not without it."""
        alone = {test: 1.0}
        return _run(self._changed, alone).end != "passed" and (
            _run(self._clean, alone).end == "passed"
        )

    def _compare(self, tests: dict[str, float]) -> tuple[str, str]:
        if _run(self._clean, tests).end != "passed":
            return "unknown", "too slow without the mutation as well"
        again = _run(self._changed, tests, patience=3)
        if again.end == "passed":
            return "survived", ""
        return "killed", again.test or again.end


def _run(tree: Path, tests: dict[str, float], patience: int = 1) -> _Run:
    """Run tests until one fails, within limits of processor and wall time."""
    expected = sum(tests.values())
    cpu_s = int(patience * (_CPU_S + _CPU_TIMES * expected))
    names, output = tree.parent / "tests.txt", tree.parent / "output.txt"
    names.write_text("\n".join(tests) + "\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    # Into a file: what a test leaves running would keep a pipe open.
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "-p", "no:xdist", f"@{names}"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5)),
        )
    try:
        code = process.wait(patience * (_WALL_S + _WALL_TIMES * expected))
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own, with what it started
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return _Run("slow")
        raise
    return _read(code, output.read_text("utf-8", "replace").splitlines())


def _read(code: int, lines: Sequence[str]) -> _Run:
    if code == 0:
        return _Run("passed")
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return _Run("slow")
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if code != 1 or not failed:
        return _Run("broken")  # it cannot be imported, or took the process with it
    test, _, why = failed[0].split(" ", 1)[1].partition(" - ")
    return _Run("slow" if _TIMED_OUT in why else "failed", test)
