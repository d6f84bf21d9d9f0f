"""Folders of large files in the user's cache: whole or absent, bounded in size, for one user only.

Each states its key, and the length and a sampled hash of every file; one that differs is not used.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgedec._support import amounts, stated, user_folders
from edgedec._support.atomic import PARTIAL, STALE_S, sync
from edgedec._support.stated import Unusable

# All folders together; beyond it the one that was not used for the longest time is removed.
MAX_BYTES = 8 << 30


class NoRoom(OSError):
    """The cache or the disk is too small; the message says which."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One folder.

    Attributes:
        kind: what its files are, in a word.
        path: where it is.
        size_bytes: of its files together.
        used: when it was last used, in seconds since 1970.
        what: its contents in a few words; empty for one that was not finished.

    """

    kind: str
    path: Path
    size_bytes: int
    used: float
    what: str


class DiskCache:
    """The folders of one kind.

    Args:
        kind: lower-case letters; the name of the folder that holds them.

    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def folder(self) -> Path:
        """The folder that holds them; raises OSError if this user has no home."""
        return _root() / self.kind

    def any(self, prefix: str) -> bool:
        """Return whether there is a folder whose key begins so."""
        try:
            return any(path.name.startswith(prefix) for path in self.folder.iterdir())
        except OSError:
            return False

    def find(self, key: str) -> Path | None:
        """Return a folder, marked as used now; None if there is none.

        Raises:
            Unusable: it is damaged, or of another key.

        """
        try:
            path = self.folder / key
            if not path.is_dir():
                return None
        except OSError:
            return None
        stated.check(path, key)
        with suppress(OSError):  # a folder that cannot be written can be read
            os.utime(path / stated.STATED)
        return path

    def remove(self, key: str) -> None:
        """Remove a folder, if that can be done. Processes that have mapped its files keep them."""
        with suppress(OSError):
            _remove(self.folder / key)

    @contextmanager
    def writing(
        self,
        key: str,
        what: str,
        expected_bytes: int,
        *,
        required: bool = False,
        keep: Collection[str] = (),
    ) -> Iterator[Path]:
        """Give an empty folder that gets its name when the block ends well.

        Another process may do the same: the first to end is kept, and both find a whole folder.

        Args:
            key: of the folder.
            what: its contents in a few words.
            expected_bytes: that will be written.
            required: nothing works without it, so that it may take all of the disk.
            keep: keys of folders in use, which are not removed to make room for it.

        Raises:
            NoRoom: it would not fit, or take more than half of the free disk.
            OSError: it cannot be written.

        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clean()
        _check_room(self.folder, expected_bytes, required)
        partial = self.folder / f".edgedec-{secrets.token_hex(6)}"
        partial.mkdir(mode=0o700)
        try:
            yield partial
            stated.write(partial, key, what)
            self._publish(partial, key)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _bound({self.folder / one for one in (key, *keep)})

    def _publish(self, partial: Path, key: str) -> None:
        target = self.folder / key
        try:
            partial.rename(target)
        except OSError:
            try:
                stated.check(target, key)
            except Unusable:
                _remove(target)
                partial.rename(target)
            else:  # another process was quicker
                shutil.rmtree(partial, ignore_errors=True)
        sync(self.folder)


def entries() -> list[Entry]:
    """Return all folders of this user, and those that were not finished."""
    found = []
    try:
        kinds = [one for one in _folders(_root()) if re.fullmatch(r"[a-z]{1,20}", one.name)]
    except OSError:  # no home
        return []
    for kind in kinds:
        for path in _folders(kind):
            size, newest = _measure(path)
            if PARTIAL.fullmatch(path.name):
                found.append(Entry(kind.name, path, size, newest, ""))
                continue
            with suppress(Unusable):
                what = str(stated.read(path).get("what", ""))
                used = (path / stated.STATED).stat().st_mtime
                found.append(Entry(kind.name, path, size, used, what))
    return found


def remove(path: Path) -> None:
    """Remove a folder that ``entries`` listed."""
    with suppress(FileNotFoundError):  # another process was quicker
        _remove(path)


def clean() -> None:
    """Remove what processes that were killed left unfinished."""
    for one in entries():
        if not one.what and time.time() - one.used > STALE_S:
            shutil.rmtree(one.path, ignore_errors=True)


# -- the disk -----------------------------------------------------------------------------------


def _root() -> Path:
    own = os.environ.get("EDGEDEC_CACHE", "")
    return Path(own) if own else user_folders.folder()


def _folders(above: Path) -> list[Path]:
    """Return the folders in a folder, without links to some."""
    try:
        return [path for path in sorted(above.iterdir()) if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def _measure(path: Path) -> tuple[int, float]:
    """Return the bytes of a folder's files and the time of the last change."""
    size, newest = 0, 0.0
    with suppress(OSError):
        newest = path.stat().st_mtime
        for file in stated.files(path).values():
            facts = file.lstat()
            size += facts.st_size
            newest = max(newest, facts.st_mtime)
    return size, newest


def _check_room(folder: Path, expected_bytes: int, required: bool) -> None:
    needed = amounts.size(expected_bytes)
    if expected_bytes > MAX_BYTES and not required:
        most = amounts.size(MAX_BYTES)
        raise NoRoom(errno.ENOSPC, f"{needed}, more than the {most} that are kept")
    free = shutil.disk_usage(folder).free
    if expected_bytes > (free if required else free // 2):
        room = f"{'' if required else 'half of '}the {amounts.size(free)} that are free"
        raise NoRoom(errno.ENOSPC, f"{needed}, more than {room} on the disk")


def _bound(kept: Collection[Path]) -> None:
    """Remove what was not used for the longest time until the rest is within the bound."""
    found = sorted(entries(), key=lambda one: one.used)
    total = sum(one.size_bytes for one in found)
    for one in found:
        if total <= MAX_BYTES:
            return
        if one.path in kept or not one.what:
            continue
        with suppress(OSError):
            _remove(one.path)
            total -= one.size_bytes


def _remove(path: Path) -> None:
    """Remove a folder; it is renamed first, so that no process finds half of it."""
    if path.name.startswith("."):
        shutil.rmtree(path)
        return
    aside = path.with_name(f".edgedec-{secrets.token_hex(6)}")
    path.rename(aside)
    shutil.rmtree(aside)
