"""Debian's programs for arm64 in a folder, and the processors that qemu's user mode emulates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor as qemu emulates it.

    Attributes:
        name: qemu's.
        part: ARM's number.
        features: as the kernel lists them. ONNX Runtime chooses kernels by them, so they must be
            those that qemu emulates: another's end the process.
        compiled_for: what a compiler calls its instructions.

    """

    name: str
    part: str
    features: str
    compiled_for: str

    def info(self, cores: int = 2) -> str:
        """Return what stands in /proc/cpuinfo."""
        return "".join(
            f"processor\t: {core}\nBogoMIPS\t: 108.00\nFeatures\t: {self.features}\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x4\n"
            f"CPU part\t: {self.part}\nCPU revision\t: 1\n\n"
            for core in range(cores)
        )


_BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32"
_DOT = f"{_BASE} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
# A Raspberry Pi 4 has no dot products, a Raspberry Pi 5 has them.
A72 = Cpu("cortex-a72", "0xd08", f"{_BASE} cpuid", "armv8-a")
A76 = Cpu("cortex-a76", "0xd0b", _DOT, "armv8.2-a+dotprod")
CPUS = {cpu.name: cpu for cpu in (A72, A76)}


def unpack(work: Path, packages: Sequence[str], run: Callable[[list[str | Path]], object]) -> Path:
    """Have apt fetch packages for arm64 with all they need, and unpack them; none is installed.

    Args:
        work: a folder for this alone, which is emptied first.
        packages: their names.
        run: runs a command, and raises an error where it fails.

    Returns:
        The root of the unpacked system.

    """
    root = work / "root"
    shutil.rmtree(work, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "root/proc"):
        (work / name).mkdir(parents=True)
    (work / "state" / "status").touch()
    apt: list[str | Path] = [
        "apt-get", "-qq",
        "-o", f"Dir::State={work}/state",
        "-o", f"Dir::State::status={work}/state/status",
        "-o", f"Dir::Cache={work}/cache",
        "-o", "APT::Architecture=arm64",
        "-o", "APT::Architectures=arm64",
        "-o", "APT::Sandbox::User=",
    ]  # fmt: skip
    run([*apt, "update"])
    run([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *packages])
    for package in sorted((work / "cache" / "archives").glob("*.deb")):
        run(["dpkg-deb", "--extract", package, root])
    keep_links_inside(root)
    for name in ("state", "cache"):
        shutil.rmtree(work / name)
    return root


def keep_links_inside(root: Path) -> None:
    """Make absolute links relative: qemu would follow them out of the folder."""
    for link in root.rglob("*"):
        if link.is_symlink() and (target := str(link.readlink())).startswith("/"):
            link.unlink()
            link.symlink_to(os.path.relpath(root / target.lstrip("/"), link.parent))
