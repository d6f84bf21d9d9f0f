"""Files from elsewhere, opened once: a regular file, or an error; never a wait.

What is checked is what is read: the checks are made on the open file, not on its path, so that
nothing can be put in its place between the two. A FIFO does not block, and inside a bundle no
link is followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, BinaryIO

# Windows has none of the first three; a file is opened for its bytes there.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_BY_FOLDER = os.open in os.supports_dir_fd and bool(_NO_LINK) and bool(_FOLDER)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or the one that a link leads to, for reading; else OSError."""
    return _checked(os.open(path, _READ | _NO_WAIT), path)


def read_regular(path: Path, most: int) -> bytes | None:
    """Return a regular file's bytes; None if there are more than ``most``; else OSError."""
    with open_regular(path) as stream:
        data = stream.read(most + 1)
    return data if len(data) <= most else None


def check_regular(paths: Sequence[Path]) -> None:
    """Raise OSError unless all of these are regular files that can be read."""
    for path in paths:
        open_regular(path).close()


def open_inside(root: Path, parts: Sequence[str]) -> BinaryIO:
    """A regular file inside a folder, for reading, with no link on the way from the folder on.

    Args:
        root: the folder; a link to one is followed.
        parts: names of the folders below it and of the file; none is ``..`` or a path.

    Raises:
        OSError: it cannot be opened, is not a regular file, or a link leads to it.

    """
    path = root.joinpath(*parts)
    try:
        opened = _below(root, parts) if _BY_FOLDER else _by_path(root, parts)
    except OSError as error:
        if error.errno == errno.ELOOP or _linked(root, parts):
            raise OSError(errno.ELOOP, "a link leads to it", str(path)) from None
        raise
    return _checked(opened, path)


def _below(root: Path, parts: Sequence[str]) -> int:
    """Opened step by step, each name in the folder opened before."""
    folder = os.open(root, _READ | _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _READ | _FOLDER | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(parts[-1], _READ | _NO_WAIT | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)


def _by_path(root: Path, parts: Sequence[str]) -> int:
    """Open a path on systems without such flags: it is checked first, then opened."""
    if _linked(root, parts):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return os.open(root.joinpath(*parts), _READ)


def _linked(root: Path, parts: Sequence[str]) -> bool:
    steps = [root.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    try:
        return any(step.is_symlink() for step in steps) or not steps[-1].resolve().is_relative_to(
            root.resolve()
        )
    except (OSError, RuntimeError):
        return True


def _checked(opened: int, path: Path) -> BinaryIO:
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(opened, "rb")
    except BaseException:
        os.close(opened)
        raise


def sha256_of_stream(stream: BinaryIO) -> str:
    """Return the hexadecimal sha256 of the bytes that are left in a file."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def linked(source: Path | str, other: Path | str) -> None:
    """Give a file another name, or copy it where the file system has no links."""
    try:
        os.link(source, other)
    except OSError:
        shutil.copy2(source, other)


def last_bytes(stream: IO[bytes], most: int) -> bytes:
    """Return the end of an open file."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
    return stream.read()


def sampled(stream: BinaryIO) -> tuple[int, str]:
    """Return a file's length and the sha256 of samples spread over it; of all bytes of a short one.

    A single bit that was flipped between two samples is not noticed.
    """
    size = os.fstat(stream.fileno()).st_size
    digest = hashlib.sha256()
    if size <= _SAMPLES * _SAMPLE_BYTES:
        digest.update(stream.read())
    else:
        for at in range(_SAMPLES):
            stream.seek(at * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
    return size, digest.hexdigest()
