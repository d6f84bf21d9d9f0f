"""Reads the manifest of a bundle and the files it names, as untrusted input.

Types are checked, sizes bounded, and no path leaves the folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from edgedec._support import installation
from edgedec._support.fields import Fields, json_object, one_line
from edgedec._support.files import open_inside, open_regular, sha256_of_stream
from edgedec._support.model_path import not_a_bundle
from edgedec._support.ready_path import GENAI
from edgedec.errors import BundleError

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_UNLISTED = 100
# Keeps git from changing line endings. Not in the manifest, since a copy may lack hidden files.
GIT_FILE, GIT_RULE = ".gitattributes", b"* -text\n"
_MAX_TEXT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class FileFact:
    """The manifest's facts about a file."""

    sha256: str
    size_bytes: int


def sha256_of(file: Path) -> str:
    """Return the hexadecimal sha256 of a regular file's bytes."""
    try:
        with open_regular(file) as stream:
            return sha256_of_stream(stream)
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None


def read_manifest(root: Path) -> dict[str, Any]:
    """Read the manifest of a folder as JSON."""
    file = root / MANIFEST
    try:
        if not root.is_dir():
            raise BundleError(not_a_bundle(root))
        with open_inside(root, [MANIFEST]) as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BundleError(not_a_bundle(root)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BundleError(f"{file} cannot be read: {reason}") from None
    if len(data) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{file} is larger than {MAX_MANIFEST_BYTES >> 20} MiB")
    parsed = json_object(data)
    if parsed is None:
        raise BundleError(f"{file} is not a JSON object: export or copy the bundle again")
    return parsed


def check_version(manifest: Fields) -> None:
    """Refuse a manifest of an older or newer version, or one that is not edgedec's."""
    packed = sorted(one.parent.name for one in Path(manifest.where).parent.glob(f"*/{GENAI}"))
    if packed and not manifest.has("schema_version"):
        raise BundleError(
            f"{manifest.where} is that of a package of models: give one of its folders, such as"
            f" {one_line(packed[0])}"
        )
    version = manifest.size("schema_version")
    if version > SCHEMA_VERSION:
        raise BundleError(
            f"{manifest.where} has schema {version}, this edgedec reads {SCHEMA_VERSION}:"
            f" upgrade with {installation.upgrade()}"
        )
    if version < SCHEMA_VERSION:
        raise BundleError(
            f"{manifest.where} has schema {version}, this edgedec reads {SCHEMA_VERSION}:"
            " export the bundle again"
        )


def listed_files(root: Path) -> dict[str, FileFact]:
    """Return a bundle manifest's facts about its files, whether or not they exist.

    Older schemas list them in the same way.

    Raises:
        BundleError: the folder has no manifest that edgedec wrote.

    """
    manifest = Fields(read_manifest(root), str(root / MANIFEST))
    if not 1 <= manifest.size("schema_version") <= SCHEMA_VERSION:
        raise manifest.wrong("schema_version", f"1 to {SCHEMA_VERSION}")
    manifest.object("roles").object("target")
    return {name: file_fact(facts) for name, facts in manifest.objects("files")}


def file_fact(facts: Fields) -> FileFact:
    """Return hash and size of a file, as the manifest states them."""
    digest = facts.text("sha256")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise facts.wrong("sha256", "64 hexadecimal digits")
    return FileFact(digest, facts.size("bytes"))


def check_file(root: Path, name: str, fact: FileFact, *, hashed: bool) -> None:
    """Check a file against the manifest.

    Args:
        hashed: compare the sha256 as well as the size.

    Raises:
        BundleError: it is missing, not a regular file, behind a link, outside the folder, or
            altered.

    """
    with _opened(root, name, fact) as stream:
        if hashed and sha256_of_stream(stream) != fact.sha256:
            raise _altered(root, name)


def read_file(root: Path, name: str, fact: FileFact) -> bytes:
    """Return a file's bytes, checked against the manifest's sha256 as by ``check_file``."""
    with _opened(root, name, fact) as stream:
        data = stream.read(fact.size_bytes)
    if hashlib.sha256(data).hexdigest() != fact.sha256:
        raise _altered(root, name)
    return data


@contextmanager
def _opened(root: Path, name: str, fact: FileFact) -> Iterator[BinaryIO]:
    """Open a file of the bundle with its size, once, so that the checked file is the one read."""
    parts = _parts(root, name)
    file = root.joinpath(*parts)
    try:
        with open_inside(root, parts) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != fact.size_bytes:
                remedy = "export or copy the bundle again"
                if size <= _MAX_TEXT_BYTES and _has_other_line_ends(stream.read(), fact):
                    remedy = (
                        "its line endings were changed, as git does with core.autocrlf; clone the"
                        " bundle again with `git clone -c core.autocrlf=false`"
                    )
                raise BundleError(
                    f"{file} has {size} bytes, the manifest says {fact.size_bytes}: {remedy}"
                )
            yield stream
    except FileNotFoundError:
        raise BundleError(f"{file} is missing: export or copy the bundle again") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BundleError(
                f"{file} is behind a link, which may lead out of the bundle: put the file itself"
                " there"
            ) from None
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None


def _has_other_line_ends(data: bytes, fact: FileFact) -> bool:
    """Return whether these are the stated bytes but for the endings of all lines."""
    unix = data.replace(b"\r\n", b"\n")
    return any(
        hashlib.sha256(text).hexdigest() == fact.sha256
        for text in (unix, unix.replace(b"\n", b"\r\n"))
    )


def _altered(root: Path, name: str) -> BundleError:
    return BundleError(
        f"{root / name} was altered: its sha256 is not the manifest's; export or copy the bundle"
        " again"
    )


def _parts(root: Path, name: str) -> tuple[str, ...]:
    """Return the parts of the path to a file; BundleError if it is not a path inside the folder."""
    pure = PurePosixPath(name)
    plain = name == str(pure) and not pure.is_absolute() and ".." not in pure.parts
    if not plain or name == "." or any(c in name for c in "\\:") or one_line(name) != name:
        raise BundleError(f"{root / MANIFEST}: {one_line(name)!r} is not a path inside the bundle")
    return pure.parts


def unlisted(root: Path, files: Collection[str]) -> tuple[str, ...]:
    """Return paths of files in a bundle's folder that its manifest does not list.

    At most ``MAX_UNLISTED``; of a folder only its files are listed. Nothing reads these files.
    """
    found: list[str] = []
    known = {MANIFEST, GIT_FILE} if _has_git_rule(root) else {MANIFEST}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(folder, name).relative_to(root).as_posix()
            if path not in known and path not in files:
                found.append(path)
                if len(found) == MAX_UNLISTED:
                    return tuple(found)
    return tuple(found)


def _has_git_rule(root: Path) -> bool:
    """Return whether a bundle has the ``.gitattributes`` that exports write, and not another."""
    try:
        with open_inside(root, [GIT_FILE]) as stream:
            return stream.read(len(GIT_RULE) + 1) == GIT_RULE
    except OSError:
        return False


def listed(root: Path, where: Fields, name: str, files: Mapping[str, FileFact]) -> Path:
    """Return the absolute path of a file that the manifest lists."""
    if name not in files:
        raise BundleError(f"{where.where}: {one_line(name)!r} is not among the files")
    return root / name
