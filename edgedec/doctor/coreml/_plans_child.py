"""Reads the compute plans of one program in the child process of ``plans``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgedec._support import _sandbox_child
from edgedec._support.fields import to_json
from edgedec.doctor.coreml.plans import read_placements


def main(task: Mapping[str, Any]) -> Any:
    """Read the plans of ``package``; return a ``PlacedProgram``."""
    return to_json(read_placements(task["name"], Path(task["package"])))


if __name__ == "__main__":
    _sandbox_child.serve(main)
