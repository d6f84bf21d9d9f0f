"""A small file system in memory that can really be full; mounted where the right is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DISK_BYTES = 4 << 20


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Mount a file system of 4 MiB on a new folder, or skip the test with the reason."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted: {error.strerror}")
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Write a file that leaves this many bytes free."""
    file = disk / "filling"
    file.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))
    return file
