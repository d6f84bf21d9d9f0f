"""An emulated ARM system with Debian's Python and edgedec's wheels, run by qemu's user mode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from edgedec._support.installation import DISTRIBUTION
from tools.aarch64.debian import CPUS, Cpu, unpack

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build" / "aarch64"
_QEMU = "qemu-aarch64"
_PROGRAMS = {_QEMU: "qemu-user", "apt-get": "apt", "dpkg-deb": "dpkg"}
_DEBIAN = ("python3", "libgomp1", "libstdc++6")
_PYTHON = "3.11"
# Wheels' platforms, of which pip tries only those that it is told; Debian 12 has 2.36.
_GLIBC = (35, 31, 28, 17)
# What the checks use besides edgedec itself.
_EXTRAS = ("export", "openvino")
_TESTS = ("pytest", "pytest-timeout", "hypothesis")


class MissingError(Exception):
    """A program or a package that cannot be had here; the message says how to get it."""


class System:
    """An emulated system; made on first use, about half a minute.

    Args:
        cpu: its processor.

    Raises:
        MissingError: qemu, apt or a wheel cannot be had.

    """

    def __init__(self, cpu: Cpu) -> None:
        for program, package in _PROGRAMS.items():
            if shutil.which(program) is None:
                raise MissingError(f"{program} is not installed: on Debian, apt install {package}")
        self.cpu, self._python = cpu, WORK / "python"
        self._root = WORK / cpu.name
        if not self._python.exists():
            root = unpack(WORK, _DEBIAN, do)
            _install(root, self._python)
            for each in CPUS.values():
                _seen_by(each, root, WORK / each.name)
            _launcher(root, self._python)

    def run(
        self,
        arguments: Sequence[str | Path],
        limit_s: float,
        plugin: Path | None = None,
        packages: Path | None = None,
        within: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run the emulated Python, with a plugin of qemu's and more packages.

        ``within`` is a command line of this system that runs the rest of it.

        Raises:
            subprocess.TimeoutExpired: it did not end within the limit.

        """
        own = {"QEMU_LD_PREFIX": self._root, "QEMU_CPU": self.cpu.name, "QEMU_PLUGIN": plugin}
        own["PYTHONPATH"] = packages
        own |= {"ORT_DISABLE_TELEMETRY": "1", "LC_ALL": "C.UTF-8"}
        own["XDG_CACHE_HOME"] = WORK / f"cache-{self.cpu.name}"
        return subprocess.run(
            [*within, *(str(part) for part in (self._python, *arguments))],
            cwd=REPOSITORY,
            # The children of what runs are emulated in the same way.
            env={**os.environ, **{name: str(value) for name, value in own.items() if value}},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


def _seen_by(cpu: Cpu, root: Path, folder: Path) -> None:
    """Make a folder that looks like a root, with what the kernel says of a processor."""
    (folder / "proc").mkdir(parents=True)
    (folder / "proc" / "cpuinfo").write_text(cpu.info(), "ascii")
    for entry in root.iterdir():
        if entry.name not in ("proc", "var"):  # they hide this system's: a clone may stand in /var
            (folder / entry.name).symlink_to(Path("..") / root.name / entry.name)


def requirements(*extras: str, alone: bool = False) -> list[str]:
    """Return what the project asks for on such a system, or what its extras ``alone`` add."""
    asked = [Requirement(one) for one in metadata.requires(DISTRIBUTION) or []]
    there = {"python_version": _PYTHON, "platform_machine": "aarch64"}

    def holds(one: Requirement, extra: str) -> bool:
        return one.marker is None or one.marker.evaluate(there | {"extra": extra})

    return [
        f"{one.name}{one.specifier}"
        for one in asked
        if any(holds(one, extra) for extra in extras) and not (alone and holds(one, ""))
    ]


def _install(root: Path, python: Path) -> None:
    """Install the wheels that this project asks for, and the project itself as a path."""
    site = root / f"usr/local/lib/python{_PYTHON}/dist-packages"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet"]
    pip += ["--target", site, "--only-binary=:all:", f"--python-version={_PYTHON}"]
    pip += [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in _GLIBC]
    do([*pip, *requirements(*_EXTRAS), *_TESTS])
    start = f"{REPOSITORY}\nimport sys; sys.executable = {str(python)!r}\n"
    (site / "edgedec.pth").write_text(start, "utf-8")


def _launcher(root: Path, python: Path) -> None:
    """Write the program that children are started with; it is there once all else is."""
    emulated = root / f"usr/bin/python{_PYTHON}"
    python.write_text(f'#!/bin/sh\nexec {_QEMU} "{emulated}" "$@"\n', "utf-8")
    python.chmod(0o755)


def do(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run a command here, with more in its environment; MissingError with its last line."""
    words = list(map(str, command))
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(words, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise MissingError(f"{words[0]} failed: {' '.join(last)}")
