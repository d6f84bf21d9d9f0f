"""A folder with Debian's Python for arm64 and edgedec's wheels, run by qemu's user mode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build" / "aarch64"
_PACKAGES = ("python3", "libgomp1", "libstdc++6")
# What the checks use besides edgedec's own packages.
_EXTRAS = ("export",)
_TESTS = ("pytest", "pytest-timeout", "hypothesis")
_SITE = "usr/local/lib/python3.11/dist-packages"


class MissingError(Exception):
    """A program or a package that cannot be had here."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor as qemu emulates it.

    Attributes:
        name: qemu's.
        part: ARM's number.
        features: as the kernel lists them. ONNX Runtime chooses kernels by them, so they must be
            those that qemu emulates.

    """

    name: str
    part: str
    features: str

    def info(self) -> str:
        """Return what stands in /proc/cpuinfo."""
        core = (
            "processor\t: {core}\nBogoMIPS\t: 108.00\n"
            f"Features\t: {self.features}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
            f"CPU variant\t: 0x4\nCPU part\t: {self.part}\nCPU revision\t: 1\n\n"
        )
        return "".join(core.format(core=core_) for core_ in range(os.cpu_count() or 1))


_BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32"
_DOT = f"{_BASE} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
# A Raspberry Pi 4 has no dot products, a Raspberry Pi 5 has them.
_BOTH = (Cpu("cortex-a72", "0xd08", f"{_BASE} cpuid"), Cpu("cortex-a76", "0xd0b", _DOT))
CPUS = {cpu.name: cpu for cpu in _BOTH}


class System:
    """An emulated system; made on first use, about half a minute.

    Args:
        cpu: its processor.

    Raises:
        MissingError: qemu, apt or a wheel cannot be had.

    """

    def __init__(self, cpu: Cpu) -> None:
        for program in ("qemu-aarch64", "apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise MissingError(f"{program} is not installed (on Debian: apt install qemu-user)")
        self.cpu, self.root = cpu, WORK / "root"
        if not (WORK / "complete").exists():
            shutil.rmtree(WORK, ignore_errors=True)
            self._unpack()
            self._install()
            (WORK / "complete").touch()
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc" / "cpuinfo").write_text(cpu.info(), "ascii")

    def run(
        self, arguments: Sequence[str | Path], limit_s: float, plugin: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the emulated Python; ``subprocess.TimeoutExpired`` past the limit."""
        return subprocess.run(
            [str(part) for part in (*self._launcher(plugin), *arguments)],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "ORT_DISABLE_TELEMETRY": "1",
                "LC_ALL": "C.UTF-8",
                "XDG_CACHE_HOME": str(WORK / f"cache-{self.cpu.name}"),
            },
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def _launcher(self, plugin: Path | None = None) -> list[str | Path]:
        plugins: list[str | Path] = [] if plugin is None else ["-plugin", plugin]
        python = self.root / "usr/bin/python3.11"
        return ["qemu-aarch64", *plugins, "-L", self.root, "-cpu", self.cpu.name, python]

    def _unpack(self) -> None:
        """Have apt fetch Python for arm64 and all it needs; nothing is installed."""
        for name in ("state/lists/partial", "cache/archives/partial", "root"):
            (WORK / name).mkdir(parents=True)
        (WORK / "state" / "status").touch()
        places = {"State": WORK / "state", "State::status": WORK / "state/status",
                  "Cache": WORK / "cache"}  # fmt: skip
        apt = ["apt-get", "-qq", *(f"-oDir::{name}={path}" for name, path in places.items())]
        apt += ["-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64", "-oAPT::Sandbox::User="]
        _do([*apt, "update"])
        _do([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *_PACKAGES])
        for archive in sorted((WORK / "cache/archives").glob("*.deb")):
            _do(["dpkg-deb", "--extract", archive, self.root])
        # Links from the root would lead out of the folder.
        for link in self.root.rglob("*"):
            if link.is_symlink() and (to := str(link.readlink())).startswith("/"):
                link.unlink()
                link.symlink_to(os.path.relpath(f"{self.root}{to}", link.parent))

    def _install(self) -> None:
        """Install the wheels that this project names, and the project itself as a path."""
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
        extras = [one for extra in _EXTRAS for one in project["optional-dependencies"][extra]]
        platforms = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (28, 17)]
        site = self.root / _SITE
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site, *platforms]
        pip += ["--only-binary=:all:", "--python-version=3.11"]
        _do([*pip, *project["dependencies"], *extras, *_TESTS])
        launcher = WORK / "python"
        words = " ".join(f'"{part}"' for part in self._launcher())
        launcher.write_text(
            words.join(("#!/bin/sh\nexec ", ' "$@"\n')).replace(
                f'"{self.cpu.name}"', '"${EMULATED_CPU:-cortex-a76}"'
            )
        )
        launcher.chmod(0o755)
        # Its children are emulated, too.
        start = f"{REPOSITORY}\nimport sys; sys.executable = {str(launcher)!r}\n"
        (site / "edgedec.pth").write_text(start, "utf-8")


def _do(command: Sequence[str | Path]) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise MissingError(f"{command[0]} failed: {' '.join(last)}")
