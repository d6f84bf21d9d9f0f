"""Files that appear complete or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

# What is written under such a name has not got its own yet.
PARTIAL = re.compile(r"\.edgedec-[0-9a-f]{12}")
# A partial file or folder in which nothing was written for so long has lost its process.
STALE_S = 600.0


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream for what takes the place of a file when the block ends well.

    Its bytes are on the disk before it gets its name. Whatever ends the block early, an
    interrupt and a full disk included, leaves what was there and nothing else. Only a killed
    process leaves its partial file, which a later one removes. Its mode is that of any new file, by
    the umask; a file of ``tempfile`` could be read by its owner alone.

    Raises:
        OSError: it cannot be written.

    """
    _clean(file.parent)
    partial = file.with_name(f".edgedec-{secrets.token_hex(6)}")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, file)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _clean(folder: Path) -> None:
    """Remove partial files of processes that were killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not PARTIAL.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S:
                Path(entry.path).unlink()


def write_json(file: Path, raw: Any, *, indent: int | None = None) -> None:
    """Write JSON in one move; ValueError if a number in it is not finite."""
    data = json.dumps(raw, indent=indent, allow_nan=False).encode()
    with replacing(file) as stream:
        stream.write(data)


def remove_folder(path: Path) -> None:
    """Remove a folder; it is renamed first, so that no process finds half of it."""
    if not path.name.startswith("."):
        aside = path.with_name(f".edgedec-{secrets.token_hex(6)}")
        path.rename(aside)
        path = aside
    shutil.rmtree(path)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    if os.name == "nt" and path.is_dir():  # a folder cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
