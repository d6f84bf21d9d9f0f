"""What a folder states about itself: its key, and the length and a sampled hash of every file.

The samples notice a file that was cut short, replaced by another model's, or not written to the
disk before the power went; not a single flipped bit between two of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgedec._support.atomic import sync, write_json
from edgedec._support.fields import json_object
from edgedec._support.files import open_regular, sampled

STATED = "entry.json"
_FORMAT = 1
_MAX_STATED_BYTES = 1 << 16


class Unusable(Exception):
    """A folder is there and not what it states; says what differs."""


def write(folder: Path, key: str, what: str) -> None:
    """Write what a folder holds; its files are on the disk, for this user alone."""
    facts = {}
    for name, file in files(folder).items():
        file.chmod(0o600)
        sync(file)
        with open_regular(file) as stream:
            facts[name] = list(sampled(stream))
    raw = {"format": _FORMAT, "key": key, "what": what, "files": facts}
    write_json(folder / STATED, raw)
    (folder / STATED).chmod(0o600)
    sync(folder)


def read(folder: Path) -> dict[str, Any]:
    """Return what a folder states; Unusable if that is missing or damaged."""
    try:
        with open_regular(folder / STATED) as stream:
            parsed = json_object(stream.read(_MAX_STATED_BYTES))
    except OSError:
        parsed = None
    if parsed is None or parsed.get("format") != _FORMAT:
        raise Unusable(f"{STATED} is missing or damaged")
    return parsed


def check(folder: Path, key: str) -> None:
    """Raise Unusable for a folder that is not as it states, of another key, or another user's."""
    try:
        # A cache may be named that others can write to; the administrator may have filled it.
        if hasattr(os, "geteuid") and folder.stat().st_uid not in (0, os.geteuid()):
            raise Unusable("it belongs to another user")
        found = read(folder)
        if found.get("key") != key:
            raise Unusable("it was made for something else")
        every = found.get("files")
        if not isinstance(every, dict) or not every:
            raise Unusable(f"{STATED} is damaged")
        if files(folder).keys() != {STATED, *every}:
            raise Unusable("files are missing, or were added")
        for name, facts in every.items():
            with open_regular(folder / name) as stream:
                if list(sampled(stream)) != facts:
                    raise Unusable(f"{name} has another length or other bytes")
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def files(folder: Path) -> dict[str, Path]:
    """Return everything in a folder and those in it that is not a folder, by its path there."""
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): path for path in found}
