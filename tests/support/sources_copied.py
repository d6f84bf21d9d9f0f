"""A copy of what a build reads, and builds of it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

MAPPED = ("export", "runtimes", "models")
_FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "tools/build_backend.py")


def copy_sources(repository: Path, to: Path) -> None:
    """What a build reads, away from a build/ folder whose stale files would enter the wheel."""
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    (to / "tools").mkdir(exist_ok=True)
    for name in _FILES:
        shutil.copy(repository / name, to / name)
    for name in ("edgedec", "src", *MAPPED):
        shutil.copytree(repository / name, to / name, symlinks=True, ignore=skip)


def build(sources: Path, *what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run ``python -m build`` into ``dist``; ``what`` are its options, such as ``--wheel``."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", *what]
    done = subprocess.run(
        command, cwd=sources, env={**os.environ, **(environment or {})}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
