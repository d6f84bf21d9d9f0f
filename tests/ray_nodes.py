"""A Ray cluster of several nodes on this machine, each with a raylet and workers of its own.

The nodes are children of another process, which ends them when this one ends. They have addresses
of the loopback network, and ask for a token, since Ray listens on all networks otherwise.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

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
        raylet = self.raylets[number]
        tasks = Path(f"/proc/{raylet}/task").iterdir()
        children = " ".join((task / "children").read_text() for task in tasks).split()
        for process in (raylet, *map(int, children)):
            os.kill(process, signal.SIGKILL)


@contextmanager
def cluster(folder: Path, *cpus: int, **more: Any) -> Iterator[Nodes]:
    """Run nodes with these numbers of cores; the first is the head, where drivers run."""
    env = os.environ | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(20),
        "RAY_USAGE_STATS_ENABLED": "0", "EDGEDEC_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    with (folder / "cluster.log").open("w") as log, subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env,
    ) as process:  # fmt: skip
        nodes = Nodes(process, env)
        for count in cpus:
            nodes.add(count, **more)
        yield nodes
        assert process.stdin is not None
        process.stdin.close()  # ends it


class Apart:
    """A network of two addresses: ``here``, and ``there`` in a namespace of its own.

    Attributes:
        link: what connects them, at this end.

    """

    here, there, link = "10.214.0.1", "10.214.0.2", "edgedecray"
    _name, _far = "edgedec-ray", "edgedecfar"

    def __enter__(self) -> Apart:
        if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("ip"):
            pytest.skip("needs root and `ip`, for a network namespace")
        try:
            _quiet("ip", "netns", "add", self._name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made: {error.stderr}")
        far = ("peer", "name", self._far, "netns", self._name)
        _quiet("ip", "link", "add", self.link, "type", "veth", *far)
        _quiet("ip", "address", "add", f"{self.here}/30", "dev", self.link)
        _quiet("ip", "link", "set", self.link, "up")
        _quiet(*self._inside(), "ip", "address", "add", f"{self.there}/30", "dev", self._far)
        _quiet(*self._inside(), "ip", "link", "set", self._far, "up")
        _quiet(*self._inside(), "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *details: object) -> None:
        subprocess.run(["ip", "link", "del", self.link], capture_output=True, check=False)
        _quiet("ip", "netns", "del", self._name)

    def cut(self) -> None:
        """Let no packet through any more."""
        _quiet("ip", "link", "set", self.link, "down")

    def _inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._name)

    @contextmanager
    def node(self, nodes: Nodes, folder: Path, hidden: Path) -> Iterator[None]:
        """Run a node there, which has a cache of its own and does not see a folder of this one."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block",
                   f"--address={nodes.address}", f"--node-ip-address={self.there}", "--num-cpus=1",
                   f"--object-store-memory={STORE_BYTES}"]  # fmt: skip
        mounts = 'mount -t tmpfs tmpfs "$0" && mount -t tmpfs tmpfs /tmp/ray && exec "$@"'
        apart = [*self._inside(), "unshare", "--mount", "sh", "-c", mounts, str(hidden), *command]
        env = nodes.env | {"EDGEDEC_CACHE": str(folder / "cache-there")}
        with (folder / "there.log").open("w") as log, subprocess.Popen(
            apart, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
        ) as process:  # fmt: skip
            try:
                until(lambda: "Ray runtime started" in (folder / "there.log").read_text())
                yield
            finally:
                _end_all(process.pid)


def _end_all(session: int) -> None:
    """Kill every process of a session, or that one of it has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            of = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(of[3]) == session:
                os.kill(int(folder.name), signal.SIGKILL)


def _quiet(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


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
