"""What is kept between runs in the user's cache: records in JSON, and folders of large files.

Everything in it can be removed: it is measured, checked or made again. It appears complete or not
at all, and states hashes of its contents: what is damaged, or made for something else, is not used.
Only files with a name that edgedec gives are touched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support import amounts, user_folders
from edgedec._support.atomic import PARTIAL, STALE_S, remove_folder, sync, write_json
from edgedec._support.fields import json_object, printable
from edgedec._support.files import open_regular, read_regular, sampled

FOLDER = "EDGEDEC_CACHE"
# All folders together; beyond it the one that was not used for the longest time is removed.
MAX_BYTES = 8 << 30
MAX_RECORD_BYTES = 32 << 20
PLAN, PROFILE, CHECKS, LEFTOVER = "plan", "profile", "checks", "leftover"
# File names by kind.
_NAMES = {
    PLAN: re.compile(r"[0-9a-f]{32}(\.limited)?\.plan\.json"),
    PROFILE: re.compile(r"[0-9a-f]{32}\.json"),
    CHECKS: re.compile(r"opened-[a-z]{1,20}\.json"),
    LEFTOVER: PARTIAL,  # of a process that was killed before it could rename the file
}
_OF_KIND = re.compile(r"[a-z]{1,20}")
# The file of a folder that states its key, and the length and a sampled hash of every other file.
STATED = "entry.json"
_FORMAT, _MAX_STATED_BYTES = 1, 1 << 16


class Unusable(Exception):
    """It is there and cannot be used; the message is the end of a sentence about it."""


class _OfAnother(Unusable):
    """It is JSON that edgedec does not write."""


class NoRoom(OSError):
    """The cache or the disk is too small; the message says which."""


def _cache(*below: str) -> Path:
    """Return ``$EDGEDEC_CACHE``, or a folder below the user's own; OSError without a home."""
    own = os.environ.get(FOLDER, "")
    return Path(own) if own else user_folders.folder().joinpath(*below)


# -- records ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object that is kept.

    Attributes:
        kind: ``plan``, ``profile`` or ``checks``.

    """

    kind: str
    key: str

    @property
    def file(self) -> Path:
        """Its file; OSError if this user has no home, as in some containers."""
        if self.kind == CHECKS:
            return user_folders.folder() / f"opened-{self.key}.json"
        suffix = ".plan.json" if self.kind == PLAN else ".json"
        return _cache("profiles") / f"{self.key}{suffix}"

    def read(self) -> dict[str, Any] | None:
        """Return it; None if there is none.

        Raises:
            Unusable: it cannot be read, or is damaged.

        """
        try:
            return _content(read_object(self.file))
        except OSError:  # nothing is there, or nothing can be kept here
            return None

    def write(self, content: Any, what: str = "") -> bool:
        """Keep it in place of an earlier one, with a few words on it; False if that fails.

        Raises:
            ValueError: a number in it is not finite.

        """
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self.file, {"what": what, "sha256": _digest(content), "content": content})
        except OSError:
            return False
        return True

    def remove(self) -> bool:
        """Remove it; False if there was none."""
        with suppress(FileNotFoundError):
            self.file.unlink()
            return True
        return False


def any_record(kind: str) -> bool:
    """Return whether anything of a kind is kept; a cheap check."""
    try:
        names = os.listdir(Record(kind, "").file.parent)  # noqa: PTH208 - names are wanted
    except OSError:
        return False
    return any(_NAMES[kind].fullmatch(name) for name in names)


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        Unusable: it cannot be read, is too large or is damaged.

    """
    try:
        data = read_regular(file, MAX_RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise Unusable(f"cannot be read ({error.strerror or error})") from None
    if data is None:
        raise Unusable(f"is larger than {MAX_RECORD_BYTES >> 20} MiB")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise Unusable("is damaged: it is not JSON") from None
    if not isinstance(raw, dict):
        raise _OfAnother("is damaged: it is not a JSON object")
    return raw


def _content(raw: dict[str, Any]) -> dict[str, Any]:
    if "content" not in raw:  # written by an earlier version
        return raw
    content = raw["content"]
    try:
        if isinstance(content, dict) and _digest(content) == raw.get("sha256"):
            return content
    except RecursionError:
        pass
    raise Unusable("is damaged")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


# -- folders ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of large files that is kept, whole or not at all, for one user only.

    Attributes:
        kind: what its files are, in lower-case letters.
        key: what they are of.

    """

    kind: str
    key: str

    @property
    def path(self) -> Path:
        """The path, whether or not it exists; OSError if this user has no home."""
        return _cache() / self.kind / self.key

    def find(self) -> Path | None:
        """Return the folder, marked as used now; None if there is none.

        Raises:
            Unusable: it is damaged, or of another key.

        """
        try:
            path = self.path
            if not path.is_dir():
                return None
        except OSError:
            return None
        _check_stated(path, self.key)
        with suppress(OSError):  # a folder that cannot be written can be read
            os.utime(path / STATED)
        return path

    def usable(self) -> Path | None:
        """Return the folder as ``find`` does; one that cannot be used is removed."""
        try:
            return self.find()
        except Unusable:
            self.remove()
            return None

    def remove(self) -> None:
        """Remove it, if that can be done. Processes that have mapped its files keep them."""
        with suppress(OSError):
            remove_folder(self.path)

    @contextmanager
    def writing(
        self,
        what: str,
        expected_bytes: int,
        *,
        required: bool = False,
        keep: Collection[str] = (),
    ) -> Iterator[Path]:
        """Give an empty folder that gets its name when the block ends well.

        Another process may do the same: the first to end is kept, and both find a whole folder.

        Args:
            what: its contents in a few words.
            expected_bytes: that will be written.
            required: nothing works without it, so that it may take all of the disk.
            keep: keys of folders in use, which are not removed to make room for it.

        Raises:
            NoRoom: it would not fit, or take more than half of the free disk.
            OSError: it cannot be written.

        """
        above = self.path.parent
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in folders():
            if one.kind == LEFTOVER and time.time() - one.used > STALE_S:
                shutil.rmtree(one.path, ignore_errors=True)
        _check_room(above, expected_bytes, required)
        partial = above / f".edgedec-{secrets.token_hex(6)}"
        partial.mkdir(mode=0o700)
        try:
            yield partial
            _state(partial, self.key, what)
            self._publish(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _bound({above / one for one in (self.key, *keep)})

    def _publish(self, partial: Path) -> None:
        try:
            partial.rename(self.path)
        except OSError:
            try:
                _check_stated(self.path, self.key)
            except Unusable:
                remove_folder(self.path)
                partial.rename(self.path)
            else:  # another process was quicker
                shutil.rmtree(partial, ignore_errors=True)
        sync(self.path.parent)


def any_folder(kind: str, prefix: str) -> bool:
    """Return whether there is a folder of a kind whose key begins so."""
    try:
        return any(path.name.startswith(prefix) for path in Folder(kind, "").path.iterdir())
    except OSError:
        return False


def _state(folder: Path, key: str, what: str) -> None:
    """Write what a folder holds; its files are on the disk, for this user alone."""
    facts = {}
    for name, file in _files(folder).items():
        file.chmod(0o600)
        sync(file)
        with open_regular(file) as stream:
            facts[name] = list(sampled(stream))
    write_json(folder / STATED, {"format": _FORMAT, "key": key, "what": what, "files": facts})
    (folder / STATED).chmod(0o600)
    sync(folder)


def _stated(folder: Path) -> dict[str, Any]:
    try:
        with open_regular(folder / STATED) as stream:
            parsed = json_object(stream.read(_MAX_STATED_BYTES))
    except OSError:
        parsed = None
    if parsed is None or parsed.get("format") != _FORMAT:
        raise Unusable(f"{STATED} is missing or damaged")
    return parsed


def _check_stated(folder: Path, key: str) -> None:
    """Raise Unusable for a folder that is not as it states, of another key, or another user's.

    The samples notice a file that was cut short, replaced by another model's, or not written to the
    disk before the power went; not a single flipped bit between two of them.
    """
    try:
        # A cache may be named that others can write to; the administrator may have filled it.
        if hasattr(os, "geteuid") and folder.stat().st_uid not in (0, os.geteuid()):
            raise Unusable("it belongs to another user")
        found = _stated(folder)
        if found.get("key") != key:
            raise Unusable("it was made for something else")
        every = found.get("files")
        if not isinstance(every, dict) or not every:
            raise Unusable(f"{STATED} is damaged")
        if _files(folder).keys() != {STATED, *every}:
            raise Unusable("files are missing, or were added")
        for name, facts in every.items():
            with open_regular(folder / name) as stream:
                if list(sampled(stream)) != facts:
                    raise Unusable(f"{name} has another length or other bytes")
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _files(folder: Path) -> dict[str, Path]:
    """Return everything in a folder and those in it that is not a folder, by its path there."""
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): path for path in found}


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
    found = sorted(folders(), key=lambda one: one.used)
    total = sum(one.size_bytes for one in found)
    for one in found:
        if total <= MAX_BYTES:
            return
        if one.path in kept or one.kind == LEFTOVER:
            continue
        with suppress(OSError):
            remove_folder(one.path)
            total -= one.size_bytes


# -- everything ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A record's file, a folder, or one of the two that was not finished.

    Attributes:
        kind: a record's, a folder's or ``leftover``.
        size_bytes: of its files together.
        used: when it was written, or last used, in seconds since 1970.
        what: its contents in a few words.

    """

    kind: str
    path: Path
    size_bytes: int
    used: float
    what: str


def entries() -> list[Entry]:
    """Return everything in this user's cache, by kind and then newest first."""
    order = (PLAN, PROFILE, CHECKS)

    def place(one: Entry) -> tuple[int, str, float]:
        at = order.index(one.kind) if one.kind in order else len(order) + (one.kind == LEFTOVER)
        return at, one.kind, -one.used

    return sorted([*_record_entries(), *folders()], key=place)


def clear() -> list[Entry]:
    """Empty the cache and return what was removed.

    Raises:
        OSError: a file cannot be removed; those before it have been.

    """
    found = entries()
    for one in found:
        with suppress(FileNotFoundError):  # another process was quicker
            if one.path.is_dir() and not one.path.is_symlink():
                remove_folder(one.path)
            else:
                one.path.unlink()
    return found


def folders() -> list[Entry]:
    """Return all folders of large files, and those that were not finished."""
    found = []
    try:
        kinds = [one for one in _below(_cache()) if _OF_KIND.fullmatch(one.name)]
    except OSError:  # no home
        return []
    for kind in kinds:
        for path in _below(kind):
            size, newest = _measure(path)
            if PARTIAL.fullmatch(path.name):
                found.append(Entry(LEFTOVER, path, size, newest, "a folder that was not finished"))
                continue
            with suppress(Unusable, OSError):
                what = printable(str(_stated(path).get("what", "")))
                used = (path / STATED).stat().st_mtime
                found.append(Entry(kind.name, path, size, used, what))
    return found


def _below(above: Path) -> list[Path]:
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
        for file in _files(path).values():
            facts = file.lstat()
            size += facts.st_size
            newest = max(newest, facts.st_mtime)
    return size, newest


def _record_entries() -> Iterator[Entry]:
    found: dict[Path, None] = {}
    for kind in (PROFILE, CHECKS):
        with suppress(OSError):  # no home, or no such folder
            found |= dict.fromkeys(sorted(Record(kind, "").file.parent.iterdir()))
    for path in found:
        of = next((k for k, pattern in _NAMES.items() if pattern.fullmatch(path.name)), None)
        with suppress(OSError):  # another process has just removed it
            facts = path.lstat()
            if of is None or not stat.S_ISREG(facts.st_mode):
                continue
            what = _what(of, path)
            if what is not None:
                yield Entry(of, path, facts.st_size, facts.st_mtime, printable(what))


def _what(kind: str, path: Path) -> str | None:
    """Return a file's contents in a few words; None for another program's.

    Caches named by MD5 digests look alike. A damaged file is judged by its name alone.
    """
    if kind == LEFTOVER:
        return "a file that was not finished"
    try:
        raw = read_object(path)
        if "content" not in raw:
            ours = not raw.keys().isdisjoint(("schema", "format"))
            return "written by an earlier version of edgedec" if ours else None
        _content(raw)
    except _OfAnother:
        return None
    except (OSError, Unusable) as error:
        return f"a file that {error}"
    return str(raw.get("what", ""))
