"""Files that appear complete or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream for what takes the place of a file when the block ends well.

    Its bytes are on the disk before it gets its name. Whatever ends the block early, an
    interrupt and a full disk included, leaves what was there and nothing else. Its mode is that
    of any new file, by the umask; a file of ``tempfile`` could be read by its owner alone.

    Raises:
        OSError: it cannot be written.

    """
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


def write_json(file: Path, raw: Any, *, indent: int | None = None) -> None:
    """Write JSON in one move.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.

    """
    data = json.dumps(raw, indent=indent, allow_nan=False).encode()
    with replacing(file) as stream:
        stream.write(data)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    if os.name == "nt" and path.is_dir():  # a folder cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
