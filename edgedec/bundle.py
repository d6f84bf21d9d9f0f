"""The artifact: one folder that an export writes and every runtime reads.

::

    manifest.json         what is in it, with the size and sha256 of every file
    target/model.onnx     the model whose text is wanted, with model.onnx.data
    draft/model.onnx      a smaller one that proposes (optional)
    tokenizer/            tokenizer.json and what came with it

A bundle comes from elsewhere, so nothing in the manifest is trusted: types are checked, and no
path leaves the folder. Data only: nothing in a bundle is ever executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec.errors import BundleError
from edgedec.fields import LARGEST_SIZE, Fields, one_line

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
# Files up to this size are hashed whenever a bundle is opened: tens of milliseconds at most.
# Larger ones would delay the first token; `inspect` and `verify` hash all.
SMALL_FILE_BYTES = 64 << 20
# Not imported from edgedec.models: a bundle stands below the models.
_DEMO = Path(__file__).parent / "models" / "demo" / "bundle"

OnFile = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class FileFact:
    """What the manifest says about a file."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Role:
    """One model of a bundle.

    Attributes:
        role: ``target`` or ``draft``.
        format: what a runtime looks for; ``onnx``.
        path: the model's main file, absolute.
        files: all its files, relative to the bundle.
        weights: ``int4``, ``int8``, ``fp16`` or ``fp32``.
        kv: ``fp32`` or ``int8``.
        architecture: the ``model_type`` it was exported from.
        source: name of the checkpoint.
        licence: as the checkpoint states it, or None.
        dims: sizes by name: layers, hidden, heads, vocab_size, max_context and so on.

    """

    role: str
    format: str
    path: Path
    files: tuple[str, ...]
    weights: str
    kv: str
    architecture: str
    source: str
    licence: str | None
    dims: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle.

    Attributes:
        path: the folder, absolute.
        manifest: the whole manifest, for showing.
        target: the model whose text is wanted.
        draft: the smaller model, if there is one.
        tokenizer: the folder with ``tokenizer.json``.
        tokenizer_hash: sha256 of the tokenizer's content, however the file is written.
        generation: defaults the checkpoint came with (temperature, top_p and so on).
        files: every file by its path in the bundle.

    """

    path: Path
    manifest: Mapping[str, Any]
    target: Role
    draft: Role | None
    tokenizer: Path
    tokenizer_hash: str
    generation: Mapping[str, Any]
    files: Mapping[str, FileFact]

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Bundle:
        """Read the manifest and check that all files are there with their sizes.

        Small files are hashed as well.

        Args:
            path: a bundle's folder, or ``demo`` for the pair that ships.
            verify: hash all files, which reads every byte.

        Raises:
            BundleError: no bundle, a newer schema, a manifest that makes no sense, a path
                that leaves the folder, a file that is missing or altered.

        """
        root = _DEMO if str(path) == "demo" else Path(path)
        manifest = Fields(_read_manifest(root), f"{root / MANIFEST}")
        _check_version(manifest)
        root = root.resolve()
        files = {name: _file_fact(facts) for name, facts in manifest.objects("files")}
        for name, fact in files.items():
            _check_file(root, name, fact)
        roles = manifest.object("roles")
        tokenizer = manifest.object("tokenizer")
        tokenizer_file = _listed(root, tokenizer, tokenizer.text("file"), files)
        bundle = cls(
            path=root,
            manifest=manifest.raw,
            target=_role(root, "target", roles.object("target"), files),
            draft=(
                _role(root, "draft", roles.object("draft"), files) if roles.has("draft") else None
            ),
            tokenizer=tokenizer_file.parent,
            tokenizer_hash=tokenizer.text("content_sha256"),
            generation=manifest.object("generation").raw if manifest.has("generation") else {},
            files=files,
        )
        bundle._check_hashes(LARGEST_SIZE if verify else SMALL_FILE_BYTES)
        return bundle

    def verify_files(self, on_file: OnFile | None = None) -> None:
        """Compare every byte with the manifest's sha256.

        ``on_file(name, done_bytes, total_bytes)`` runs after each file.

        Raises:
            BundleError: at the first file that differs.

        """
        self._check_hashes(LARGEST_SIZE, on_file)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The target, and the draft if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(fact.size_bytes for fact in self.files.values())

    def _check_hashes(self, largest: int, on_file: OnFile | None = None) -> None:
        done, total = 0, self.size_bytes
        for name, fact in self.files.items():
            if fact.size_bytes <= largest and sha256_of(self.path / name) != fact.sha256:
                raise BundleError(
                    f"{self.path / name} was altered: its sha256 is not the manifest's;"
                    " export or copy the bundle again"
                )
            done += fact.size_bytes
            if on_file is not None:
                on_file(name, done, total)


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


def _read_manifest(root: Path) -> dict[str, Any]:
    file = root / MANIFEST
    try:
        if not root.is_dir():
            raise BundleError(f"{root} is no folder: give a bundle that `edgedec export` wrote")
        with file.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BundleError(
            f"{root} has no {MANIFEST}: give a bundle that `edgedec export` wrote, all of it"
        ) from None
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


def _check_version(manifest: Fields) -> None:
    version = manifest.size("schema_version")
    if version > SCHEMA_VERSION:
        raise BundleError(
            f"{manifest.where} has schema {version}, this edgedec reads up to {SCHEMA_VERSION}:"
            " upgrade with `pip install --upgrade edgedec`"
        )
    if version < 1:
        raise BundleError(f"{manifest.where} has schema {version}, expected 1 or more")


def _file_fact(facts: Fields) -> FileFact:
    digest = facts.text("sha256")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise facts.wrong("sha256", "64 hexadecimal digits")
    return FileFact(digest, facts.size("bytes"))


def _check_file(root: Path, name: str, fact: FileFact) -> None:
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


def _listed(root: Path, where: Fields, name: str, files: Mapping[str, FileFact]) -> Path:
    if name not in files:
        raise BundleError(f"{where.where}: {one_line(name)!r} is not among the files")
    return root / name


def _role(root: Path, role: str, fields: Fields, files: Mapping[str, FileFact]) -> Role:
    for name in fields.texts("files"):
        _listed(root, fields, name, files)
    dims = fields.object("dims")
    return Role(
        role=role,
        format=fields.text("format"),
        path=_listed(root, fields, fields.text("file"), files),
        files=fields.texts("files"),
        weights=fields.text("weights"),
        kv=fields.text("kv"),
        architecture=fields.text("architecture"),
        source=fields.text("source"),
        licence=fields.text("licence") if fields.has("licence") else None,
        dims={name: dims.size(name) for name in dims.raw},
    )
