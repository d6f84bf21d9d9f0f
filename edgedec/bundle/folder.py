"""A bundle: one folder that an export writes and every runtime reads.

::

    manifest.json            what is in it, with the size and sha256 of every file
    target/model.onnx        the target: its graph, with weights in model.onnx.data
    target/model.gguf        the target for llama.cpp; a bundle has either or both
    draft/...                a smaller model that drafts (optional)
    tokenizer/               tokenizer.json and what came with it
    draft-tokenizer/         the draft's tokenizer, if it differs from the target's

Data only: nothing in a bundle is ever executed or unpickled. See ``manifest`` for how it is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.fields import LARGEST_SIZE, Fields
from edgedec.bundle.manifest import (
    MANIFEST,
    FileFact,
    check_file,
    check_version,
    file_fact,
    listed,
    read_file,
    read_manifest,
    unlisted,
)
from edgedec.errors import BundleError, InputError

# Files up to this size are hashed whenever a bundle is opened: tens of milliseconds at most. Larger
# ones would delay the first token; `inspect` and `verify` hash all.
SMALL_FILE_BYTES = 64 << 20
# Bytes of one number of a key or value, by the type in the manifest.
KV_BYTES = {"fp32": 4, "fp16": 2, "int8": 1}
# Not imported from edgedec.models, a higher layer.
_DEMO = Path(__file__).parents[1] / "models" / "demo" / "bundle"

_Files = Mapping[str, FileFact]


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in one format.

    Attributes:
        format: decides the runtime, as ``onnx`` does.
        path: the model's main file, absolute.
        files: all its files, relative to the bundle.
        weights: how they are stored, as ``int4`` or ``q4_k_m``.
        kv: type of keys and values, as ``fp32`` or ``int8``.
        draft_vocab: of a draft, how many tokens it can draft; None is all.

    """

    format: str
    path: Path
    files: tuple[str, ...]
    weights: str
    kv: str
    draft_vocab: int | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """One model of a bundle.

    Attributes:
        role: ``target`` or ``draft``.
        architecture: the ``model_type`` it was exported from.
        source: name of the checkpoint.
        licence: as the checkpoint states it, or None.
        dims: sizes by name: layers, hidden, heads, vocab_size, max_context and so on.
        tokenizer: the folder with ``tokenizer.json``.
        tokenizer_hash: sha256 of the tokenizer's content, however the file is written.
        variants: the model in each format there is; at least one.
        taps: of a head, the layers of the target before which it reads the residual stream.

    """

    role: str
    architecture: str
    source: str
    licence: str | None
    dims: Mapping[str, int]
    tokenizer: Path
    tokenizer_hash: str
    variants: Mapping[str, Variant]
    taps: tuple[int, ...] = ()

    def variant(self, format: str) -> Variant:
        """Return the model in this format; InputError if the bundle has other formats only."""
        if format not in self.variants:
            raise InputError(
                f"the bundle has no {self.role} in the format {format!r}, only"
                f" {', '.join(self.variants)}"
            )
        return self.variants[format]

    def kv_bytes_per_token(self, format: str) -> int | None:
        """Return the bytes of a token's keys and values in this format, without scales.

        None if the manifest does not say.
        """
        width = KV_BYTES.get(self.variant(format).kv)
        layers = "kv_layers" if "kv_layers" in self.dims else "layers"
        if width and "kv_channels" in self.dims:  # heads differ by layer
            return 2 * width * self.dims["kv_channels"]
        sizes = [self.dims[n] for n in (layers, "kv_heads", "head_dim") if n in self.dims]
        return 2 * width * math.prod(sizes) if width and len(sizes) == 3 else None


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle.

    Attributes:
        path: the folder, absolute.
        manifest: the whole manifest, for display.
        target: the model that determines the text.
        draft: the smaller model, or None.
        head: what drafts from the target's states, or None.
        generation: defaults the checkpoint came with (temperature, top_p and so on).
        files: every file by its path in the bundle.

    """

    path: Path
    manifest: Mapping[str, Any]
    target: Role
    draft: Role | None
    generation: Mapping[str, Any]
    files: Mapping[str, FileFact]
    head: Role | None = None

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Bundle:
        """Read the manifest and check that all files are there with their sizes.

        Small files are hashed as well.

        Args:
            path: a bundle's folder, or ``demo`` for the pair that ships.
            verify: hash all files, which reads every byte.

        Raises:
            BundleError: not a bundle, another schema, an invalid manifest, a path outside the
                folder, or a missing or altered file.

        """
        root = _DEMO if str(path) == "demo" else Path(path)
        manifest = Fields(read_manifest(root), f"{root / MANIFEST}")
        check_version(manifest)
        root = root.resolve()
        files = {name: file_fact(facts) for name, facts in manifest.objects("files")}
        for name, fact in files.items():
            check_file(root, name, fact, hashed=False)
        roles = manifest.object("roles")
        bundle = cls(
            path=root,
            manifest=manifest.raw,
            target=_role(root, "target", roles.object("target"), files),
            draft=_optional(root, "draft", roles, files),
            head=_optional(root, "head", roles, files),
            generation=manifest.object("generation").raw if manifest.has("generation") else {},
            files=files,
        )
        bundle._check_hashes(LARGEST_SIZE if verify else SMALL_FILE_BYTES)
        return bundle

    def stored_bytes(self, role: Role, format: str) -> int:
        """Return the bytes of a model's files in a format; a head's without those of its target."""
        own = set(role.variant(format).files)
        if role is not self.target:
            own -= {name for one in self.target.variants.values() for name in one.files}
        return sum(self.files[name].size_bytes for name in own)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The target, and the draft if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats in which every model of the bundle is available."""
        return tuple(
            format
            for format in self.target.variants
            if all(format in role.variants for role in self.roles)
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all files except the manifest."""
        return sum(fact.size_bytes for fact in self.files.values())

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Files in the folder that the manifest does not list; nothing reads them."""
        return unlisted(self.path, self.files)

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a listed file's bytes, checked against the manifest's sha256; None if not listed.

        Raises:
            BundleError: it was altered, is larger than ``limit``, or is not a regular file
                inside the folder.

        """
        fact = self.files.get(name)
        if fact is None:
            return None
        if fact.size_bytes > limit:
            raise BundleError(f"{self.path / name}: expected at most {limit >> 20} MiB")
        return read_file(self.path, name, fact)

    def _check_hashes(self, largest: int) -> None:
        for name, fact in self.files.items():
            if fact.size_bytes <= largest:
                check_file(self.path, name, fact, hashed=True)


def _optional(root: Path, role: str, roles: Fields, files: _Files) -> Role | None:
    return _role(root, role, roles.object(role), files) if roles.has(role) else None


def _role(root: Path, role: str, fields: Fields, files: _Files) -> Role:
    dims, tokenizer = fields.object("dims"), fields.object("tokenizer")
    variants = {
        format: _variant(root, format, facts, files) for format, facts in fields.objects("variants")
    }
    if not variants:
        raise fields.wrong("variants", "one or more")
    return Role(
        role=role,
        architecture=fields.text("architecture"),
        source=fields.text("source"),
        licence=fields.text("licence") if fields.has("licence") else None,
        dims={name: dims.size(name) for name in dims.raw},
        tokenizer=listed(root, tokenizer, tokenizer.text("file"), files).parent,
        tokenizer_hash=tokenizer.text("content_sha256"),
        variants=variants,
        taps=fields.sizes("taps") if fields.has("taps") else (),
    )


def _variant(root: Path, format: str, fields: Fields, files: _Files) -> Variant:
    names = fields.texts("files")
    for name in names:
        listed(root, fields, name, files)
    if fields.text("file") not in names:  # so that the file that is loaded is one that is hashed
        raise fields.wrong("file", "one of its own files")
    return Variant(
        format=format,
        path=listed(root, fields, fields.text("file"), files),
        files=names,
        weights=fields.text("weights"),
        kv=fields.text("kv"),
        draft_vocab=fields.size("draft_vocab") if fields.has("draft_vocab") else None,
    )
