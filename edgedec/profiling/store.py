"""Stores profiles between runs, one file per pair and machine, and detects stale ones.

A file is validated before any of it is used; a damaged profile is measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support import user_folders
from edgedec._support.fields import from_json, to_json
from edgedec._support.files import open_regular
from edgedec._support.model_path import is_gguf
from edgedec.errors import BundleError, ProfileError
from edgedec.hardware.machine import difference, machine_facts, package_versions
from edgedec.loading.sources import Models
from edgedec.runtimes import registry

if TYPE_CHECKING:
    from edgedec.records.profile import Profile

FOLDER = "EDGEDEC_CACHE"
MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of what a profile was measured on.

    Attributes:
        where: the pair's location; a profile of files that were there before is stale.
        machine, versions: see ``edgedec.hardware.machine``.
        bundle: hash of the models' files.

    """

    where: str
    machine: Mapping[str, str]
    bundle: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """Result of looking up a profile.

    Attributes:
        profile: a valid one, or None.
        reason: why the stored one cannot be used; empty if there is none.

    """

    profile: Profile | None
    reason: str = ""


def folder() -> Path:
    """Return ``$EDGEDEC_CACHE``, or ``profiles`` in edgedec's part of the user's cache folder.

    Raises:
        OSError: this user has no home directory, as in some containers.

    """
    own = os.environ.get(FOLDER, "")
    return Path(own) if own else user_folders.folder() / "profiles"


def file_of(identity: Identity) -> Path:
    """Return the file of a pair's profile for the machine as this process sees it.

    Raises:
        OSError: see ``folder``.

    """
    # Home directories are shared, and containers share a machine: a profile measured with other
    # cores or memory has a file of its own.
    facts = "\n".join(f"{name}: {fact}" for name, fact in sorted(identity.machine.items()))
    key = f"{facts}\n{identity.where}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return folder() / f"{digest[:32]}.json"


def read(identity: Identity) -> Found:
    """Read the stored profile, if it is still valid; never raises."""
    try:
        found = read_file(file_of(identity))
    except OSError as error:
        return Found(None, f"the stored profile cannot be read ({error.strerror or error})")
    if found.profile is None:
        return found
    reason = stale(found.profile, identity)
    return Found(None, reason) if reason else found


def read_file(file: Path) -> Found:
    """Read a stored profile, whatever pair it is for; never raises."""
    from edgedec.records import soundness  # opening a model needs none of a profile's records
    from edgedec.records.profile import SCHEMA, Profile

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
        return Found(None, "the stored profile was written by another version of edgedec")
    try:
        profile = from_json(Profile, raw, "profile", ProfileError)
        soundness.check(profile)
    except (ProfileError, RecursionError):
        return Found(None, "the stored profile is damaged")
    return Found(profile)


def stale(profile: Profile, identity: Identity) -> str:
    """Return what has changed since a profile was measured; empty if nothing."""
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
    """Store a profile atomically; False if that fails, which only costs time later."""
    try:
        file = file_of(identity)
    except OSError:
        return False
    return user_folders.keep(file, to_json(profile))


# -- identity of a pair: cheap hashes of its files ----------------------------------------------

_SAMPLES, _SAMPLE = 16, 1 << 16


def identity(models: Models) -> Identity:
    """Return the current identity of a pair on this machine."""
    sources = models.sources
    stands = [str(found[0].path.resolve().parent) for found in sources.values()]
    if is_gguf(models.target):
        stands[0] = str(Path(models.target).resolve())
    if models.draft is not None and is_gguf(models.draft):
        stands[-1] = str(Path(models.draft).resolve())
    digest = hashlib.sha256()
    for role, found in sources.items():
        for source in found:
            for name, path in source.files.items():
                content = source.stated.get(name) or sampled(path)
                digest.update(f"{role}\n{source.format}\n{name}\n{content}\n".encode())
    return Identity(
        "\n".join(stands),
        machine_facts(),
        digest.hexdigest(),
        package_versions(registry.packages()),
    )


def sampled(file: Path) -> str:
    """Return a hash of a file's size and of samples spread over it, without reading gigabytes.

    Raises:
        BundleError: it cannot be read.

    """
    try:
        size = file.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with open_regular(file) as stream:
            for index in range(_SAMPLES):
                stream.seek(index * max(0, size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE))
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
