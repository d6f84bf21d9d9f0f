"""Profiles kept between runs, one file for a pair on a machine, and when they hold no longer.

Nothing of a file is believed before it was checked: a damaged one is measured anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgedec._support import caches
from edgedec._support.fields import from_json, to_json
from edgedec.errors import ProfileError
from edgedec.hardware.machine import difference
from edgedec.records import soundness
from edgedec.records.profile import SCHEMA, Profile

FOLDER = "EDGEDEC_CACHE"
MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """What a profile holds for.

    Attributes:
        where: which pair, by where it stands: a profile of what stood there before is stale.
        machine, versions: as ``edgedec.hardware.machine`` tells them.
        bundle: hash of the models' files.

    """

    where: str
    machine: Mapping[str, str]
    bundle: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """What the store has.

    Attributes:
        profile: one that holds, or None.
        reason: why one that is there cannot be used; empty where none is there.

    """

    profile: Profile | None
    reason: str = ""


def folder() -> Path:
    """``$EDGEDEC_CACHE``, or ``profiles`` in edgedec's part of the user's cache folder.

    Raises:
        OSError: this user has no home, as some containers' have none.

    """
    own = os.environ.get(FOLDER, "")
    return Path(own) if own else caches.folder() / "profiles"


def file_of(identity: Identity) -> Path:
    """Where a pair's profile on this machine, as this process sees it, is kept.

    Raises:
        OSError: see ``folder``.

    """
    # Homes are shared, and so is a machine by containers with a part of it each: what was
    # measured with other cores or memory keeps its own place.
    facts = "\n".join(f"{name}: {fact}" for name, fact in sorted(identity.machine.items()))
    key = f"{facts}\n{identity.where}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return folder() / f"{digest[:32]}.json"


def read(identity: Identity) -> Found:
    """The stored profile, if it still holds; never raises."""
    try:
        found = read_file(file_of(identity))
    except OSError as error:
        return Found(None, f"the stored profile cannot be read ({error.strerror or error})")
    if found.profile is None:
        return found
    reason = stale(found.profile, identity)
    return Found(None, reason) if reason else found


def read_file(file: Path) -> Found:
    """A stored profile, whatever it is of; never raises."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Found(None)
    except OSError as error:
        return Found(None, f"the stored profile cannot be read ({error.strerror or error})")
    if len(data) > MAX_BYTES:
        return Found(None, f"the stored profile is larger than {MAX_BYTES >> 20} MiB")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return Found(None, "the stored profile is damaged")
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        return Found(None, "the stored profile is of another version of edgedec")
    try:
        profile = from_json(Profile, raw, "profile", ProfileError)
        soundness.check(profile)
    except (ProfileError, RecursionError):
        return Found(None, "the stored profile is damaged")
    return Found(profile)


def stale(profile: Profile, identity: Identity) -> str:
    """What has changed since a profile was measured; empty where nothing has."""
    if profile.bundle != identity.bundle:
        return "the models' files changed since they were profiled"
    machine = difference(profile.machine, identity.machine)
    if machine:
        return f"the machine changed since the models were profiled: {machine}"
    versions = difference(profile.versions, identity.versions)
    if versions:
        return f"runtimes changed since the models were profiled: {versions}"
    return ""


def write(identity: Identity, profile: Profile) -> bool:
    """Keep a profile, in one move; False where it cannot be kept, which only costs time."""
    try:
        file = file_of(identity)
    except OSError:
        return False
    return caches.keep(file, to_json(profile))
