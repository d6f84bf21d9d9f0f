"""What an attack takes, measured in a small process of its own and that process's child."""

import json
import os
import subprocess
import sys

_MEASURED = """
import json, resource, sys
from pathlib import Path
from edgedec.errors import EdgedecError
try:
    said = str(work(sys.argv[1]))
except EdgedecError as error:
    said = f"{type(error).__name__}: {error}"
close()
# Not ru_maxrss, which begins with what the process that forked this one had.
lines = Path("/proc/self/status").read_text("ascii").splitlines()
own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([said, (own + both[1].ru_maxrss) * 1024,
                  sum(one.ru_utime + one.ru_stime for one in both)]))
"""


def measured(source: str, argument: str) -> tuple[str, int, float]:
    """What is said, the peak of both processes in bytes, and their processor time in seconds.

    Args:
        source: defines ``work(argument)``, and ``close()`` which ends the child.
        argument: for ``work``.

    """
    done = subprocess.run(
        [sys.executable, "-c", source + _MEASURED, argument],
        check=True, capture_output=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert done.stderr == b""
    said, peak, seconds = json.loads(done.stdout)
    return said, peak, seconds


def environment() -> dict[str, str]:
    """This one's, with its modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
