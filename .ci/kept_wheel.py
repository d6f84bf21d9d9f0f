"""Build the package of an extra once for each kind of machine; print the folder of its wheel.

Usage: kept_wheel.py EXTRA. The compiler builds for the processor at hand, so the folder's name is a
digest of the processor's features, the compiler, the interpreter and the requirement. A newer
version that fits the requirement is built and kept beside the older one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pip._vendor import tomli

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
# Folders of other requirements, processors or compilers that stay.
FORMER = 2
# The lines of /proc/cpuinfo that decide which instructions a compiler uses, on x86 and on ARM.
FEATURES = {
    "flags", "vendor_id", "cpu family", "model",
    "Features", "CPU implementer", "CPU architecture", "CPU part",
}  # fmt: skip
SETTINGS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS")


def digest(requirement: str, cpuinfo: str, settings: Mapping[str, str]) -> str:
    """Return the name of the folder for what is built of a requirement."""
    parts = {requirement, *(f"{name}={value}" for name, value in settings.items())}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in FEATURES:
            parts.add(f"{name.strip()}: {' '.join(sorted(value.split()))}")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:24]


def settings() -> dict[str, str]:
    """Return what decides beside the processor: interpreter, compiler, and what is asked of it."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    said = compiler and subprocess.run([compiler, "--version"], capture_output=True, text=True)
    return {
        **{name: os.environ.get(name, "") for name in SETTINGS},
        "compiler": said.stdout if said else "",
        "python": f"{sys.implementation.cache_tag} {sysconfig.get_platform()}",
        "libc": " ".join(platform.libc_ver()),
    }


def cpuinfo() -> str:
    """Return /proc/cpuinfo; the name of the processor on systems without it."""
    file = Path("/proc/cpuinfo")
    return file.read_text("utf-8", "replace") if file.exists() else f"model: {platform.processor()}"


def build(requirement: str, folder: Path) -> bool:
    """Put the newest version's wheel into a folder, unless it is there; whether it could."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        # Without pip's cache, which keeps wheels whatever they were built for.
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet",
             "--no-cache-dir", "--no-deps", "--find-links", str(folder), "--wheel-dir", new,
             requirement],
            stdout=sys.stderr,
        )  # fmt: skip
        for wheel in Path(new).glob("*.whl"):
            os.replace(wheel, folder / wheel.name)
    return not done.returncode


def main(requirement: str, cache: Path) -> int:
    """Build, forget what is old, print the folder; return the exit code."""
    folder = cache / digest(requirement, cpuinfo(), settings())
    folder.mkdir(parents=True, exist_ok=True)
    if not build(requirement, folder):
        return 1
    os.utime(folder)
    others = [each for each in cache.iterdir() if each.is_dir() and each != folder]
    others.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in others[FORMER:]:
        shutil.rmtree(each, ignore_errors=True)
    print(folder)
    return 0


if __name__ == "__main__":
    extras = tomli.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    (wanted,) = extras[sys.argv[1]]
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sys.exit(main(wanted, user / "edgedec-ci" / "wheels"))
