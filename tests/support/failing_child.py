"""Children of a profile that go wrong, each in its own way: the job's path says which."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgedec._support import _sandbox_child
from edgedec.errors import RuntimeUnavailable
from edgedec.profiling.children import LOGITS


def main(task: Mapping[str, Any]) -> Any:
    how = task["job"]["path"]
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "hang":
        time.sleep(600)
    elif how == "refuse":
        sys.stderr.write("warming up\n")
        raise RuntimeUnavailable("no such device here")
    elif how == "silent":
        os._exit(3)
    elif how == "raises":
        raise ZeroDivisionError("by nothing")
    elif how == "garbage":
        (Path(task["folder"]) / LOGITS).write_bytes(b"not an array")
        return {"role": 7}
    elif how == "escapes":
        sys.stderr.write("\x1b[2J\x07boo\n")
        raise SystemExit
    return None


if __name__ == "__main__":
    _sandbox_child.serve(main)
