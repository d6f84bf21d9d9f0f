"""Children of a profile that go wrong, each in its own way: the job's path says which."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from edgedec.profiling import _child

job, out = Path(sys.argv[1]), Path(sys.argv[2])
how = json.loads(job.read_text("utf-8"))["path"]
if how == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif how == "hang":
    time.sleep(600)
elif how == "refuse":
    sys.stderr.write("warming up\nno such device here\n")
    sys.exit(3)
elif how == "silent":
    sys.exit(3)
elif how == "nothing":
    sys.exit(0)
elif how == "garbage":
    (out / _child.MEASURED).write_text('{"role": 7}', "utf-8")
    (out / _child.LOGITS).write_bytes(b"not an array")
    sys.exit(0)
elif how == "escapes":
    sys.stderr.write("\x1b[2J\x07boo\n")
    sys.exit(3)
