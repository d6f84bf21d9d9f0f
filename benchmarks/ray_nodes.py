"""A Ray cluster of several nodes on this machine, each with a raylet and workers of its own.

For tests, and for the section ``ray``. The nodes are children of another process, which ends them
when this one ends. They have addresses of the loopback network, and ask for a token, since Ray
listens on all networks otherwise.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STORE_BYTES = 80 << 20


class Nodes:
    """The nodes of a cluster.

    Attributes:
        address: of its head.
        env: the environment that its drivers need.
        raylets: process ids, in the order in which the nodes were added; the head is the first.

    """

    def __init__(self, process: subprocess.Popen[str], env: dict[str, str]) -> None:
        self._process, self.env = process, env
        self.address = ""
        self.raylets: list[int] = []

    def add(self, cpus: int, env: dict[str, str] | None = None, **more: Any) -> int:
        """Start a node and return its number."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"num_cpus": cpus, "object_store_memory": STORE_BYTES, **more}
        asked.setdefault("node_ip_address", f"127.0.0.{2 + len(self.raylets)}")
        self._process.stdin.write(json.dumps([asked, env or {}]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the cluster did not start"
        self.address, raylet = json.loads(line)
        self.raylets.append(raylet)
        return len(self.raylets) - 1

    def kill(self, number: int) -> None:
        """End a node at once: its raylet, and the processes that this has started."""
        for process in (self.raylets[number], *_children(self.raylets[number])):
            os.kill(process, signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the processes of actors, on all nodes."""
        found = [child for raylet in self.raylets for child in _children(raylet)]
        return [child for child in found if _title(child).startswith("ray::Worker")]


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _title(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    return ""


@contextmanager
def cluster(folder: Path, *cpus: int, **more: Any) -> Iterator[Nodes]:
    """Run nodes with these numbers of cores; the first is the head, where drivers run."""
    env = os.environ | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(20),
        "RAY_USAGE_STATS_ENABLED": "0", "EDGEDEC_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    with (folder / "cluster.log").open("w") as log, subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env,
    ) as process:  # fmt: skip
        nodes = Nodes(process, env)
        for count in cpus:
            nodes.add(count, **more)
        yield nodes
        assert process.stdin is not None
        process.stdin.close()  # ends it


def _serve() -> None:
    """Start a node for each line of standard input, and end all of them at its end."""
    from ray.cluster_utils import Cluster

    found: Any = None
    with suppress(KeyboardInterrupt):
        for line in sys.stdin:
            asked, env = json.loads(line)
            before = dict(os.environ)
            os.environ.update(env)
            if found is None:
                asked |= {"include_dashboard": False}
                found = Cluster(initialize_head=True, head_node_args=asked)
                node = found.head_node
            else:
                node = found.add_node(**asked)
            os.environ.clear()
            os.environ.update(before)
            (raylet,) = node.all_processes["raylet"]
            sys.stdout.write(json.dumps([found.address, raylet.process.pid]) + "\n")
            sys.stdout.flush()
    with suppress(AssertionError):  # a node that was killed
        found.shutdown()


if __name__ == "__main__":
    _serve()
