"""The user's cache: profiles, plans, records of checks, and folders of large files.

Everything in it can be removed: it is measured, checked or made again. Only files with a name that
edgedec gives are touched; anything else in the folder stays as it is.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edgedec._support import disk_cache, user_folders
from edgedec._support.fields import printable
from edgedec._support.files import open_regular
from edgedec.errors import PlanError
from edgedec.planning import plan_files
from edgedec.profiling import store

PROFILE, PLAN, CHECKS, LEFTOVER = "profile", "plan", "checks", "leftover"
_NAMES = {
    PROFILE: re.compile(r"[0-9a-f]{32}\.json"),
    PLAN: re.compile(r"[0-9a-f]{32}(\.limited)?\.plan\.json"),
    CHECKS: re.compile(r"opened-[a-z]{1,20}\.json"),
    # Left by a process that was killed before it could rename the file.
    LEFTOVER: re.compile(
        r"\.(edgedec|plan)-[0-9a-f]{12}"
        r"|\.(profile|opened|[0-9a-f]{32}\.plan\.json)-[a-z0-9_]{8}"  # by an earlier version
    ),
}
_ORDER = (PLAN, PROFILE, CHECKS)
# Records of checks that are not about files that opened.
_CHECKED = {
    "packed": "hashes of graphs whose weights were packed",
    "paddings": "what keeps the rows of a pass independent of each other",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept file, or folder of large files.

    Attributes:
        kind: ``plan``, ``profile``, ``checks``, ``leftover``, or a folder's, such as ``packed``.
        path: where it is.
        size_bytes: its length, or that of its files together.
        written: when, in local time.
        what: its contents in a few words.

    """

    kind: str
    path: Path
    size_bytes: int
    written: datetime
    what: str


def kept() -> list[Kept]:
    """Return everything in this user's cache, by kind and then newest first."""
    found = [one for folder in _folders() for one in _in(folder)]
    found += [_large(one) for one in disk_cache.entries()]
    return sorted(found, key=lambda one: (_place(one.kind), one.kind, -one.written.timestamp()))


def _place(kind: str) -> int:
    """Return a kind's sort key: folders after files, and unfinished files last."""
    if kind == LEFTOVER:
        return len(_ORDER) + 1
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _large(one: disk_cache.Entry) -> Kept:
    used = datetime.fromtimestamp(one.used)
    if not one.what:
        return Kept(LEFTOVER, one.path, one.size_bytes, used, "a folder that was not finished")
    return Kept(one.kind, one.path, one.size_bytes, used, printable(one.what))


def clear() -> list[Kept]:
    """Empty the cache and return what was removed.

    Raises:
        OSError: a file cannot be removed; those before it have been.

    """
    found = kept()
    for one in found:
        if one.path.is_dir() and not one.path.is_symlink():
            disk_cache.remove(one.path)
        else:
            one.path.unlink(missing_ok=True)
    return found


def _folders() -> list[Path]:
    """Return the folders of profiles and plans and of checks; none without a home directory."""
    found = []
    for where in (store.folder, user_folders.folder):
        try:
            found.append(where())
        except OSError:
            continue
    return list(dict.fromkeys(found))


def _in(folder: Path) -> Iterator[Kept]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        kind = next((k for k, pattern in _NAMES.items() if pattern.fullmatch(path.name)), None)
        if kind is None:
            continue
        try:
            facts = path.lstat()
        except OSError:
            continue  # another process has just removed it
        if stat.S_ISREG(facts.st_mode) and not (kind in (PROFILE, PLAN) and _foreign(path)):
            written = datetime.fromtimestamp(facts.st_mtime)
            yield Kept(kind, path, facts.st_size, written, printable(_what(kind, path)))


def _foreign(path: Path) -> bool:
    """Return whether the file is valid JSON of another program that happens to use such a name.

    Caches named by MD5 digests look alike. A damaged file is judged by its name alone.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(store.MAX_BYTES + 1)
        raw = json.loads(data) if len(data) <= store.MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return False
    return not isinstance(raw, dict) or "schema" not in raw


def _what(kind: str, path: Path) -> str:
    if kind == PLAN:
        return _plan(path)
    if kind == PROFILE:
        found = store.read_file(path)
        if found.profile is None:
            return found.reason
        places = len({one.place for one in found.profile.measured})
        return f"{found.profile.models} at {places} places, {found.profile.texts}"
    if kind == CHECKS:
        name = path.stem.removeprefix("opened-")
        return _CHECKED.get(name) or f"{name.removesuffix('s')} files that opened without harm"
    return "a file that was not finished"


def _plan(path: Path) -> str:
    try:
        decision = plan_files.read(path, advice="")
    except PlanError:
        return "a plan that cannot be read, or that another version of edgedec wrote"
    return f"{decision.models}: {decision.chosen.plan.label}, made on {decision.texts}"
