"""The child of a trial in which a plan ends the process, after some repetitions."""

import os
import signal
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from edgedec._support import _sandbox_child
from edgedec.profiling import _trial_child
from edgedec.records.plan import Plan


def main(task: Mapping[str, Any]) -> Any:
    """Decode in no time; plans that draft 7 tokens crash after some repetitions.

    Their number is the job's ``draft_model``.
    """
    crash_at = int(task["draft_model"])
    turns: dict[Plan, int] = {}

    def opened(self: Any, plan: Plan) -> Any:
        turns[plan] = turns.get(plan, 0) + 1
        if plan.draft_length == 7 and turns[plan] > crash_at:
            sys.stderr.write("the driver gave up\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        return SimpleNamespace(plan=plan, close=lambda: None)

    def decode(self: Any, opened: Any, *more: object) -> Any:
        seconds = 0.02 if opened.plan.plain else 0.01
        return SimpleNamespace(calm_tpot_s=lambda: seconds, emitted=10, target_passes=5, rounds=[])

    _trial_child._Stage._open = opened  # type: ignore[method-assign]
    _trial_child._Stage._decode = decode  # type: ignore[method-assign]
    return _trial_child.main({**task, "draft_model": None})


if __name__ == "__main__":
    _sandbox_child.serve(main)
