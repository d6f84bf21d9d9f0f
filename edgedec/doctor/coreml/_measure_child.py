"""Checks one program on one device in the child process of ``check``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child
from edgedec._support.fields import to_json
from edgedec.doctor.coreml.measure import measure


def main(task: Mapping[str, Any]) -> Any:
    """Check ``package`` on ``device`` against the numbers in ``expected``; a ``DeviceCheck``."""
    with np.load(task["expected"], allow_pickle=False) as stored:
        expected = {name: stored[name] for name in stored.files}
    return to_json(measure(Path(task["package"]), task["device"], expected))


if __name__ == "__main__":
    _sandbox_child.serve(main)
