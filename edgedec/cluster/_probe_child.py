"""Runs in the child process of ``connect``: joins a cluster once and leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec._support import _sandbox_child


def main(task: Mapping[str, Any]) -> bool:
    """Join the cluster at an address; Ray may wait for minutes, or end the process."""
    import ray

    ray.init(address=task["address"], log_to_driver=False, logging_level="ERROR")
    ray.shutdown()
    return True


if __name__ == "__main__":
    _sandbox_child.serve(main)
