"""What edgedec keeps between runs: profiles, plans, and which files opened without harm.

Nothing here is needed: what is removed is measured or checked again. Only files of names that
edgedec gives are looked at, so that a folder that holds other things as well is left as it is.
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
    # Written by a process that was killed before it gave the file its name.
    LEFTOVER: re.compile(
        r"\.(edgedec|plan)-[0-9a-f]{12}"
        r"|\.(profile|opened|[0-9a-f]{32}\.plan\.json)-[a-z0-9_]{8}"  # by an earlier version
    ),
}
_ORDER = (PLAN, PROFILE, CHECKS, LEFTOVER)


@dataclass(frozen=True, slots=True)
class Kept:
    """One file.

    Attributes:
        kind: ``plan``, ``profile``, ``checks`` or ``leftover``.
        path: where it is.
        size_bytes: how long it is.
        written: when, in local time.
        what: its contents in a few words.

    """

    kind: str
    path: Path
    size_bytes: int
    written: datetime
    what: str


def kept() -> list[Kept]:
    """All that is kept for this user, by kind and then the newest first."""
    found = [one for folder in _folders() for one in _in(folder)]
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), -one.written.timestamp()))


def clear() -> list[Kept]:
    """Remove all of it; returns what was removed.

    Raises:
        OSError: a file cannot be removed; those before it are.

    """
    found = kept()
    for one in found:
        one.path.unlink(missing_ok=True)
    return found


def _folders() -> list[Path]:
    """Where profiles and plans are, and where checks are; none where there is no home."""
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
    """Whether sound JSON of that name was written by another program, as caches named by MD5 are.

    Of what is damaged there is only the name to go by.
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
