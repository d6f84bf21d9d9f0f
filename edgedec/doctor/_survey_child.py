"""Measures one device in the child process of ``survey``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec._support import _confined_child
from edgedec._support.fields import from_json, to_json
from edgedec.doctor.survey import measure_one
from edgedec.errors import ProfileError
from edgedec.hardware.device import Device


def main(task: Mapping[str, Any]) -> Any:
    """Measure ``device`` with ``threads`` on ``cores``; return a ``Speed``."""
    device = from_json(Device, task["device"], "device", ProfileError)
    cores = None if task["cores"] is None else tuple(task["cores"])
    return to_json(measure_one(device, task["threads"], cores))


if __name__ == "__main__":
    _confined_child.serve(main)
