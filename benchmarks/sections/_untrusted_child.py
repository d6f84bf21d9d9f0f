"""Runs a command as ``python -m edgedec`` does; its last line says what it and its children took.

A child of ``bench.fuzzing.attacks``.
"""

from __future__ import annotations

import atexit
import json
import resource
import runpy
import sys

from edgedec.hardware.resident import peak_bytes


def _report() -> None:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    # In kilobytes, except on macOS; of the largest child.
    children = both[1].ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = {
        "processor_s": sum(one.ru_utime + one.ru_stime for one in both),
        "peak_bytes": (peak_bytes() or 0) + children,
        "child_bytes": children,
    }
    sys.stderr.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    # The first that is registered runs last: when the children have ended.
    atexit.register(_report)
    runpy.run_module("edgedec", run_name="__main__", alter_sys=True)
