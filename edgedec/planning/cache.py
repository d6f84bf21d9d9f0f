"""Files that edgedec keeps between runs: profiles, plans and records of files that opened safely.

None of them is needed: whatever is removed is measured or checked again. Only files with names that
edgedec gives are touched, so anything else in the folder stays as it is.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edgedec._support import caches
from edgedec._support.fields import printable
from edgedec._support.files import open_regular
from edgedec.errors import PlanError
from edgedec.planning import decisions
from edgedec.profiling import store

PROFILE, PLAN, CHECKS, LEFTOVER = "profile", "plan", "checks", "leftover"
_NAMES = {
    PROFILE: re.compile(r"[0-9a-f]{32}\.json"),
    PLAN: re.compile(r"[0-9a-f]{32}\.plan\.json"),
    CHECKS: re.compile(r"opened-[a-z]{1,20}\.json"),
    # Written by a process that was killed before it could rename the file.
    LEFTOVER: re.compile(
        r"\.(edgedec|plan)-[0-9a-f]{12}"
        r"|\.(profile|opened|[0-9a-f]{32}\.plan\.json)-[a-z0-9_]{8}"  # by an earlier version
    ),
}
_ORDER = (PLAN, PROFILE, CHECKS, LEFTOVER)


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept file.

    Attributes:
        kind: ``plan``, ``profile``, ``checks`` or ``leftover``.
        path: where it is.
        size_bytes: its length.
        written: when, in local time.
        what: its contents in a few words.

    """

    kind: str
    path: Path
    size_bytes: int
    written: datetime
    what: str


def kept() -> list[Kept]:
    """Return every file kept for this user, by kind and then newest first."""
    found = [one for folder in _folders() for one in _in(folder)]
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), -one.written.timestamp()))


def clear() -> list[Kept]:
    """Remove all kept files and return what was removed.

    Raises:
        OSError: a file cannot be removed; those before it have been.

    """
    found = kept()
    for one in found:
        one.path.unlink(missing_ok=True)
    return found


def _folders() -> list[Path]:
    """Return the folders of profiles and plans and of checks; none without a home directory."""
    found = []
    for where in (store.folder, caches.folder):
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

    Caches named by an MD5 digest do. A damaged file is judged by its name alone.
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
        return (
            f"{path.stem.removeprefix('opened-').removesuffix('s')} files that opened without harm"
        )
    return "a file that was not finished"


def _plan(path: Path) -> str:
    try:
        decision = decisions.read(path, advice="")
    except PlanError:
        return "a plan that cannot be read, or of another version of edgedec"
    return f"{decision.models}: {decision.chosen.plan.label}, made on {decision.texts}"
