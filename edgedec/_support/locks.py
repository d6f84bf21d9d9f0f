"""Locks that one process holds at a time; they end with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edgedec.errors import InputError


@contextmanager
def alone(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a file or folder, ``<path>.lock`` next to it, while the block runs.

    Args:
        path: what only one process may use at a time; its folder must exist.
        busy: the error's text if another process has it.

    Raises:
        InputError: another process has it, or the lock cannot be written there.

    """
    from filelock import FileLock, Timeout

    if not path.parent.is_dir():  # FileLock would create it
        raise InputError(f"{path}: the folder {path.parent} is missing: make it, or name another")
    lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{path}: {busy}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def locked(file: IO[bytes]) -> bool:
    """Lock an open file itself until it is closed; return False if another writer has locked it.

    Nothing is left beside the file. Windows and some file systems have no such locks; there every
    writer gets the file.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


@contextmanager
def in_turn(folder: Path) -> Iterator[bool]:
    """Wait until no other process is in such a block for a folder, which exists.

    Yields False at once on systems without such locks.
    """
    with _opened(folder) as descriptor:
        yield _flock(descriptor, wait=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let others see, by ``abandoned``, that a process is at work in a folder; names may change."""
    with _opened(folder) as descriptor:
        _flock(descriptor, wait=True)
        yield


def abandoned(folder: Path) -> bool:
    """Return whether no process holds a folder that one has held; False where none can tell."""
    with _opened(folder) as descriptor:
        return _flock(descriptor, wait=False)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    if os.name == "nt":  # a folder cannot be opened there
        yield -1
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flock(descriptor: int, *, wait: bool) -> bool:
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
