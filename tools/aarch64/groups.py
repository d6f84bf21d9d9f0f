"""A text within a control group's memory limit, as on a board of that size."""

from __future__ import annotations

import json
import threading
from typing import Any

from benchmarks.sections.control_group import ControlGroup, limited
from tools.aarch64.system import System

GB = 1 << 30
_LIMIT_S = 900
_DOCTOR = ("-m", "edgedec", "doctor", "--json")
_TEXT = (
    "-m", "edgedec", "generate", "demo", "def f(x):", "-n", "16", "--memory", "auto",
    "--plan", "none", "--json",
)  # fmt: skip
# A group's name is its process's, and the systems of one process are checked side by side.
_ONE_GROUP = threading.Lock()


class LeftOutError(Exception):
    """A check that cannot be made here; the message says why."""


def problem(system: System, limit: int) -> str:
    """Return what goes wrong within a limit in bytes; "" if nothing does.

    Raises:
        LeftOutError: this process may not make a control group.
        subprocess.TimeoutExpired: it is not done in time.

    """
    with _ONE_GROUP, limited(limit) as group:
        if group is None:
            raise LeftOutError("no control group can be made here: run it as root")
        problems = _of_runs(system, group)
        return problems or of_group(group)


def _of_runs(system: System, group: ControlGroup) -> str:
    """Run edgedec inside; return what it fails at, or that it does not see the limit."""
    found: list[dict[str, Any]] = []
    for words in (_DOCTOR, _TEXT):
        done = system.run(words, _LIMIT_S, within=group.entering)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            return f"{words[2]}: exit code {done.returncode} {''.join(last)}".strip()
        found.append(json.loads(done.stdout))
    doctor, text = found
    return unseen(doctor, text, group.limit)


def unseen(doctor: dict[str, Any], text: dict[str, Any], limit: int) -> str:
    """Return how a limit was overlooked, from what two commands print as JSON; "" if it was not."""
    if (seen := doctor["memory"]["limit_bytes"]) != limit:
        return f"doctor sees a limit of {seen}, not {limit}"
    granted = text["memory"]["granted_bytes"]
    # Pages of files that another group read first are resident here, and charged there.
    if granted > limit + text["peak_memory_bytes"]:
        return f"--memory auto grants {granted} of {limit}"
    return ""


def of_group(group: ControlGroup) -> str:
    """Return what the system counted against a group; "" if nothing."""
    if killed := _killed(group):
        return f"the system ended {killed} of its processes"
    if group.peak is None:
        return "the system does not count its memory"
    return "" if group.peak < group.limit else f"its peak is {group.peak} of {group.limit}"


def _killed(group: ControlGroup) -> int:
    """Return how many processes the system ended for want of memory, in groups of either version.

    Raises:
        LeftOutError: the system does not say.

    """
    for name in ("memory.events", "memory.oom_control"):
        file = group.folder / name
        for line in file.read_text("ascii").splitlines() if file.exists() else ():
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
    raise LeftOutError("the system does not say which processes it ended")
