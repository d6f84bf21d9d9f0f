"""Tries one device in the child process of ``forms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json
from edgedec.doctor.forms import load_probe
from edgedec.errors import ProfileError
from edgedec.hardware.device import Device


def main(task: Mapping[str, Any]) -> Any:
    """Load a tiny decoder on ``device``; return why that fails, or None."""
    return load_probe(from_json(Device, task["device"], "device", ProfileError))


if __name__ == "__main__":
    _sandbox_child.serve(main)
