"""A node of a Ray cluster in a network, and with folders, of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import until

from benchmarks.ray_nodes import STORE_BYTES, Nodes


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
