"""The manifest of a bundle and the files it names, read with suspicion.

A bundle comes from elsewhere: types are checked, sizes bounded, and no path leaves the folder.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec import installation
from edgedec.errors import BundleError
from edgedec.fields import Fields, one_line
from edgedec.model_path import not_a_bundle

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileFact:
    """What the manifest says about a file."""

    sha256: str
    size_bytes: int


def sha256_of(file: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a folder as JSON."""
    file = root / MANIFEST
    try:
        if not root.is_dir():
            raise BundleError(not_a_bundle(root))
        with file.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BundleError(not_a_bundle(root)) from None
    except (OSError, ValueError) as error:
        raise BundleError(f"{file} cannot be read: {error}") from None
    if len(data) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{file} is larger than {MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise BundleError(f"{file} is no JSON object: export or copy the bundle again")
    return parsed


def check_version(manifest: Fields) -> None:
    """Refuse what an older or a newer version wrote."""
    version = manifest.size("schema_version")
    if version > SCHEMA_VERSION:
        raise BundleError(
            f"{manifest.where} has schema {version}, this edgedec reads {SCHEMA_VERSION}:"
            f" upgrade with `{installation.upgrade()}`"
        )
    if version < SCHEMA_VERSION:
        raise BundleError(
            f"{manifest.where} has schema {version}, this edgedec reads {SCHEMA_VERSION}:"
            " export the bundle again"
        )


def file_fact(facts: Fields) -> FileFact:
    """Hash and size of a file, as the manifest states them."""
    digest = facts.text("sha256")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise facts.wrong("sha256", "64 hexadecimal digits")
    return FileFact(digest, facts.size("bytes"))


def check_file(root: Path, name: str, fact: FileFact) -> None:
    """The file is there, inside the folder, with its size."""
    file = _inside(root, name)
    try:
        status = file.stat()
    except OSError:
        raise BundleError(f"{file} is missing: export or copy the bundle again") from None
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(f"{file} is no regular file")
    if status.st_size != fact.size_bytes:
        raise BundleError(
            f"{file} has {status.st_size} bytes, the manifest says {fact.size_bytes}:"
            " export or copy the bundle again"
        )


def _inside(root: Path, name: str) -> Path:
    """The file of this name; BundleError when it is or leads anywhere outside."""
    pure = PurePosixPath(name)
    plain = name == str(pure) and not pure.is_absolute() and ".." not in pure.parts
    if not plain or name == "." or any(c in name for c in "\\:") or one_line(name) != name:
        raise BundleError(f"{root / MANIFEST}: {one_line(name)!r} is no path inside the bundle")
    file = root / pure
    try:
        inside = file.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        inside = False
    if not inside:
        raise BundleError(f"{file} leads out of the bundle")
    return file


def listed(root: Path, where: Fields, name: str, files: Mapping[str, FileFact]) -> Path:
    """The absolute path of a file that the manifest lists."""
    if name not in files:
        raise BundleError(f"{where.where}: {one_line(name)!r} is not among the files")
    return root / name
