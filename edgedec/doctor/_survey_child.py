"""What runs in the child process of ``survey``: one device is measured, and its speed printed."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from edgedec._support.typed_json import from_json, to_json
from edgedec.doctor.survey import measure_one
from edgedec.errors import EdgedecError, ProfileError
from edgedec.hardware.device import Device


def main(text: str) -> None:
    """Answer with one JSON object: a ``Speed``, or the ``problem``."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        # A driver's crash is told in words, not as a file of all memory.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    job = json.loads(text)
    device = from_json(Device, job["device"], "device", ProfileError)
    cores = None if job["cores"] is None else tuple(job["cores"])
    try:
        answer = to_json(measure_one(device, job["threads"], cores))
    except EdgedecError as error:
        answer = {"problem": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
