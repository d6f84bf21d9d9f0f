"""Finds a target and its draft, in a bundle or as separate files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec._support import installation
from edgedec._support.model_path import GGUF, is_gguf, part_of_model
from edgedec.bundle import Bundle, Role
from edgedec.bundle.folder import Variant
from edgedec.bundle.manifest import sha256_of
from edgedec.decoding.session import Model
from edgedec.errors import BundleError, ExtraMissing, InputError, RuntimeUnavailable
from edgedec.hardware.pinning import pinned
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.text.tokenizer import TOKENIZER, Tokenizer

# Sizes that may be smaller in one of several formats than the manifest says.
_LARGEST = ("vocab_size", "max_context")

# Picks the format to use, given a role and the formats that its files come in.
Choose = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Source:
    """One model that can be loaded.

    Attributes:
        role: ``target``, ``draft`` or ``head``.
        format: decides the runtime.
        files: all files that determine its logits, by name.
        admit: checks the file before a runtime opens it; raises BundleError.
        stated: sha256 by file from a bundle's manifest; empty without one.
        max_context: context length it was trained for; None if its file does not say.
        kv_bytes_per_token: a lower bound; None if it is unknown until the model is loaded.
        generation: what its files state for generating, by the names of generation_config.json.
        mask: the token that a draft model reads for one not known yet; None if it cannot.
        architecture: as its files name it; "" if they do not.
        parameters: numbers in the model; None if it is not known.
        weights: how they are stored, such as ``int4`` or ``Q4_K_M``.
        tokenizer_hash: a hash of its tokenizer; "" if it is not known.

    """

    role: str
    format: str
    path: Path
    files: Mapping[str, Path]
    read_tokenizer: Callable[[], Tokenizer]
    admit: Callable[[], None]
    stated: Mapping[str, str] = field(default_factory=dict)
    max_context: int | None = None
    kv_bytes_per_token: int | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    mask: int | None = None
    architecture: str = ""
    parameters: int | None = None
    weights: str = ""
    tokenizer_hash: str = ""

    def hashes(self) -> dict[str, str]:
        """Return sha256 by file; reads every byte."""
        return {name: sha256_of(path) for name, path in self.files.items()}

    def load(self, options: LoadOptions, for_draft: Sequence[str] = ()) -> Model:
        """Check the file, and load it with its threads on the cores that the options name.

        Raises:
            InputError, BundleError, RuntimeUnavailable: see ``registry.load``.

        """
        self.admit()
        with pinned(options.cores):
            if self.role == "head":
                return registry.load_head(self.format, self.path, self.files.values(), options)
            return registry.load(self.format, self.path, options, for_draft)


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft, as files.

    Attributes:
        where: the path that the user gave, for messages.
        target, draft: the models; the draft may be None.
        head: what drafts from the target's states, or None.
        bundle: the bundle that holds the target, or None.
        shared_tokenizer: True if both are known to have the same tokenizer.

    """

    where: str
    target: Source
    draft: Source | None
    bundle: Bundle | None
    shared_tokenizer: bool
    head: Source | None = None


def _head_format(head: Role, target: Source) -> str | None:
    """Return the format in which a head runs beside a target, or None if it cannot.

    That is the target's own, or another one if the target's runtime can show the head its states.
    """
    if target.format in head.variants:
        return target.format
    shown = registry.of_format(target.format).shown
    able = shown is not None and shown(target.path, head.taps)
    return next(iter(head.variants)) if able else None


@dataclass(frozen=True, slots=True)
class Models:
    """A pair in every format that it comes in; its manifests are read once.

    Attributes:
        target, draft: as the user named them; the draft is None for the one that the target's
            bundle holds, if any.
        sources: by role, the model in every format.
        bundle: that holds the target, or None.
        formats: by role, those to choose from; without an entry that is all of its sources'.

    """

    target: str
    draft: str | None
    sources: Mapping[str, Sequence[Source]]
    bundle: Bundle | None = None
    formats: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def find(cls, target: str | Path, draft: str | Path | None = None) -> Models:
        """Find a pair.

        Args:
            target: a bundle's folder, ``demo``, or a GGUF file.
            draft: a GGUF file, or a bundle whose target drafts; None is the draft that the target's
                bundle holds, if any.

        Raises:
            BundleError: no such model, or it is damaged.

        """
        bundle, found, formats = _every_format(target)
        if draft is not None:
            _, others, of_draft = _every_format(draft)
            # Who gives a draft wants that one, and no head.
            drafts = [replace(source, role="draft") for source in others["target"]]
            found = {"target": found["target"], "draft": drafts}
            formats = {"target": formats["target"], "draft": of_draft["target"]}
        return cls(str(target), None if draft is None else str(draft), found, bundle, formats)

    def pair(self, choose: Choose) -> Pair:
        """Return each model in one format.

        Args:
            choose: picks one of the formats that a role's files come in.

        Raises:
            BundleError, InputError: there is no such format.

        """
        target = self._in_format("target", choose)
        draft = self._in_format("draft", choose) if "draft" in self.sources else None
        same = draft is not None and target.tokenizer_hash == draft.tokenizer_hash != ""
        head, bundle = None, self.bundle
        if bundle is not None and bundle.head is not None:
            own = _head_format(bundle.head, target)
            head = None if own is None else _of_role(bundle, bundle.head, own)
        return Pair(self.target, target, draft, bundle, same, head)

    def _in_format(self, role: str, choose: Choose) -> Source:
        found = {source.format: source for source in self.sources[role]}
        format = choose(role, tuple(self.formats.get(role, found)))
        if format not in found and is_gguf(next(iter(found.values())).path):
            raise InputError(
                f"{self.target if role == 'target' else self.draft} is a GGUF file, --format"
                f" {format} is for bundles: leave it out, or --format onnx makes one of it"
            )
        if format not in found:
            raise InputError(
                f"the bundle has no {role} in the format {format!r}, only {', '.join(found)}"
            )
        return found[format]


def _every_format(
    path: str | Path,
) -> tuple[Bundle | None, dict[str, list[Source]], dict[str, Sequence[str]]]:
    """Return the bundle at a path, its models in every format by role, and formats by role."""
    if is_gguf(path):
        return None, {"target": [_gguf(Path(path), "target")]}, {"target": ("gguf",)}
    if Path(path).is_file():
        raise InputError(
            part_of_model(Path(path)) or f"{path}: expected a bundle's folder or a {GGUF} file"
        )
    bundle = Bundle.open(path)
    every = {
        role.role: [_of_role(bundle, role, format) for format in role.variants]
        for role in (*bundle.roles, bundle.head)
        if role is not None
    }
    return bundle, every, dict.fromkeys(every, bundle.formats)


def _of_role(bundle: Bundle, role: Role, format: str) -> Source:
    variant = role.variant(format)
    mask = role.dims.get("mask_token")
    if mask is not None and mask >= role.dims.get("vocab_size", 0):
        raise BundleError(
            f"{bundle.path}: the {role.role}'s mask_token {mask} is not one of its tokens: the"
            " manifest is damaged, export the model again"
        )
    files = {name: bundle.path / name for name in variant.files}
    folder = PurePosixPath(role.tokenizer.relative_to(bundle.path).as_posix())

    def read_tokenizer() -> Tokenizer:
        return Tokenizer.read(
            lambda name, limit: bundle.read(str(folder / name), limit), role.tokenizer / TOKENIZER
        )

    def admit() -> None:
        registry.admit(format, variant.path, files.values())
        _check_sizes(bundle, role, variant)

    return Source(
        role=role.role,
        format=format,
        path=variant.path,
        files=files,
        read_tokenizer=read_tokenizer,
        admit=admit,
        stated={name: bundle.files[name].sha256 for name in variant.files},
        max_context=role.dims.get("max_context"),
        kv_bytes_per_token=role.kv_bytes_per_token(format),
        generation=bundle.generation,
        mask=mask,
        architecture=role.architecture,
        parameters=role.dims.get("parameters"),
        weights=variant.weights,
        tokenizer_hash=role.tokenizer_hash,
    )


def _check_sizes(bundle: Bundle, role: Role, variant: Variant) -> None:
    """Check the manifest's sizes, which memory is planned by, against the model's file.

    Formats may differ in the context and in columns without a token; the manifest states the most.

    Raises:
        BundleError: names the size that differs.

    """
    for name, found in registry.sizes(variant.format, variant.path).items():
        stated = role.dims.get(name, found)
        if found < stated and name in _LARGEST:
            found = max(found, *(_size_of(other, name, stated) for other in role.variants.values()))
        if stated != found:
            raise BundleError(
                f"{bundle.path}: the manifest says {name} {stated} of the {role.role}, its file"
                f" {variant.path.relative_to(bundle.path).as_posix()} says {found}: one of them is"
                " damaged or of another model, export the bundle again"
            )


def _size_of(variant: Variant, name: str, stated: int) -> int:
    """Return a size of another format; as the manifest states it if that cannot be read here."""
    try:
        return registry.sizes(variant.format, variant.path).get(name, stated)
    except RuntimeUnavailable:
        return stated


def _gguf(path: Path, role: str) -> Source:
    from edgedec.gguf import GgufHeader, load_tokenizer
    from edgedec.gguf.parts import decodable_parts
    from edgedec.gguf.sampling import stated_sampling

    header = GgufHeader.read(path)
    files = {part.name: part for part in decodable_parts(header)}
    parts = [header, *(GgufHeader.read(part) for part in files.values() if part != path)]
    return Source(
        role=role,
        format="gguf",
        path=path,
        files=files,
        read_tokenizer=lambda: load_tokenizer(header),
        admit=lambda: _admit_gguf(path, files.values(), header.architecture),
        max_context=header.context_length,
        generation=stated_sampling(header.metadata),
        architecture=header.architecture,
        parameters=sum(part.parameters for part in parts),
        weights=header.quantisation,
    )


def _admit_gguf(path: Path, files: Collection[Path], architecture: str | None) -> None:
    """Check a GGUF file before llama.cpp opens it; without llama.cpp, say what opens it here."""
    try:
        registry.admit("gguf", path, files)
    except ExtraMissing as error:
        raise ExtraMissing(f"{error}{_without_llamacpp(architecture)}") from error


def _without_llamacpp(architecture: str | None) -> str:
    """Return how to open a GGUF file with what is installed; empty if nothing here does."""
    from edgedec.export import reads_back

    try:
        if architecture is None or installation.missing("export") or not reads_back(architecture):
            return ""
    except ExtraMissing:  # in a folder that was never installed
        return ""
    return (
        '; or --format onnx, in Python format="onnx", works with what is installed: it converts'
        " the file, once"
    )
