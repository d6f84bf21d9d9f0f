"""Stores profiles between runs, one per pair and machine, and detects stale ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support.fields import from_json, to_json
from edgedec._support.files import open_regular
from edgedec._support.kept import PROFILE, Record, Unusable
from edgedec._support.model_path import is_gguf
from edgedec.errors import BundleError, ProfileError
from edgedec.hardware.machine import difference, machine_facts, package_versions
from edgedec.loading.sources import Models
from edgedec.runtimes import registry

if TYPE_CHECKING:
    from edgedec.records.profile import Profile


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


def key_of(identity: Identity) -> str:
    """Return the key of a pair's records for the machine as this process sees it."""
    # Home directories are shared, and containers share a machine: a profile measured with other
    # cores or memory has a file of its own.
    facts = "\n".join(f"{name}: {fact}" for name, fact in sorted(identity.machine.items()))
    key = f"{facts}\n{identity.where}"
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def read(identity: Identity) -> Found:
    """Read the stored profile, if it is still valid; never raises."""
    from edgedec.records.profile import SCHEMA, Profile  # which opening a model does not need

    try:
        raw = Record(PROFILE, key_of(identity)).read()
        if raw is None:
            return Found(None)
        if raw.get("schema") != SCHEMA:
            raise Unusable("was written by another version of edgedec")
        profile = from_json(Profile, raw, "profile", ProfileError)
    except (Unusable, ProfileError) as error:
        why = error if isinstance(error, Unusable) else "is damaged"
        return Found(None, f"the stored profile {why}")
    reason = stale(profile, identity)
    return Found(None, reason) if reason else Found(profile)


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
    places = len({one.place for one in profile.measured})
    what = f"{profile.models} at {places} places, {profile.texts}"
    return Record(PROFILE, key_of(identity)).write(to_json(profile), what)


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
