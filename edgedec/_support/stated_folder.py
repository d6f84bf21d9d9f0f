"""What a folder of large files states about itself, and whether it is so.

One file states the folder's key, and the length and a sampled hash of every other file. The samples
notice a file that was cut short, replaced by another model's, or not written to the disk before the
power went; they do not notice a single flipped bit between two of them.
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


def state(folder: Path, key: str, what: str) -> None:
    """Write what a folder holds; its files are on the disk, for this user alone."""
    files = {}
    for file in sorted(folder.iterdir()):
        file.chmod(0o600)
        sync(file)
        with open_regular(file) as stream:
            files[file.name] = list(sampled(stream))
    raw = {"format": _FORMAT, "key": key, "what": what, "files": files}
    write_json(folder / STATED, raw)
    (folder / STATED).chmod(0o600)
    sync(folder)


def read(folder: Path) -> dict[str, Any]:
    """Return what a folder states; Unusable if nothing can be read."""
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
    if not _own(folder):
        raise Unusable("it belongs to another user")
    found = read(folder)
    if found.get("key") != key:
        raise Unusable("it was made for something else")
    files = found.get("files")
    if not isinstance(files, dict) or not files:
        raise Unusable(f"{STATED} is damaged")
    try:
        there = {file.name for file in folder.iterdir()} - {STATED}
        if there != set(files):
            raise Unusable("files are missing, or were added")
        for name, facts in files.items():
            with open_regular(folder / name) as stream:
                if list(sampled(stream)) != facts:
                    raise Unusable(f"{name} has another length or other bytes")
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _own(folder: Path) -> bool:
    """Return whether a folder is this user's, or the administrator's.

    A cache may be named that others can write to.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        return folder.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False
