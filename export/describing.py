"""Makes a bundle's manifest: what was exported, its source, and the parity figures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgedec._version import __version__
from edgedec.bundle.manifest import SCHEMA_VERSION, sha256_of
from edgedec.errors import UnsupportedArchitecture
from edgedec.export import formats
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.options import ExportOptions, ModelReport, Progress
from edgedec.export.tokenizer import TokenizerContent
from edgedec.models.decoder import DecoderSpec, Shape


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model to export, as given.

    Attributes:
        role: ``target`` or ``draft``.
        tokenizer: the bundle's folder for that tokenizer.
        note: a note for the user, or empty.

    """

    role: str
    checkpoint: Checkpoint
    content: TokenizerContent
    tokenizer: str
    note: str = ""


_log = logging.getLogger("edgedec")
# Generation defaults of a checkpoint that edgedec can apply.
_GENERATION = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "do_sample")
_SIZES = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim")


def manifest(
    options: ExportOptions, sources: Sequence[GivenModel], roles: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest without the files."""
    generation, text = sources[0].checkpoint.generation, options.calibration_text
    packages = [name for format in options.formats for name in formats.exporter(format).PACKAGES]
    return {
        "schema_version": SCHEMA_VERSION,
        "created_by": f"edgedec {__version__}",
        "roles": {source.role: role for source, role in zip(sources, roles, strict=True)},
        "generation": generation_of(generation),
        "provenance": {
            "sources": {source.role: _source(source) for source in sources},
            "options": {
                "block_size": options.block_size,
                "max_context": options.max_context,
                "calibration": options.calibration if text is None else text.name,
                "parity_text": None if options.parity_text is None else options.parity_text.name,
            },
            "versions": {name: _version(name) for name in dict.fromkeys(packages)},
        },
    }


def generation_of(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults for generating that edgedec can apply, of those that files state.

    NaN and infinities are left out, with a warning: JSON has none.
    """
    found = {
        name: stated[name] for name in _GENERATION if isinstance(stated.get(name), int | float)
    }
    for name in [name for name, value in found.items() if value - value != 0]:
        _log.warning("the model's own %s is %s: left out", name, found.pop(name))
    return found


def role(
    source: GivenModel, options: ExportOptions, reports: Sequence[ModelReport]
) -> dict[str, Any]:
    """Describe one model in all its formats."""
    spec = source.checkpoint.spec.within(options.max_context)
    mixture = spec.experts
    experts = {"experts": mixture.count, "experts_used": mixture.used} if mixture else {}
    mask = source.checkpoint.mask_token
    return {
        "architecture": spec.architecture,
        "source": source.checkpoint.name,
        "licence": options.licence or source.checkpoint.licence,
        "dims": {
            **{name: getattr(spec, name) for name in _SIZES},
            **experts,
            **({"kv_layers": len(spec.attending)} if spec.mixers else {}),
            **(
                {"kv_layers": len(spec.caching), "kv_channels": spec.kv_channels}
                if spec.sizes
                else {}
            ),
            "vocab_size": max(report.columns for report in reports),
            "vocab_used": reports[0].vocab_used,
            "max_context": max(report.max_context or spec.max_context for report in reports),
            "parameters": reports[0].parameters,
            **({} if mask is None else {"mask_token": mask}),
        },
        "tokenizer": {
            "file": f"{source.tokenizer}/tokenizer.json",
            "content_sha256": source.content.sha256,
        },
        "variants": {report.format: _variant(report) for report in reports},
    }


def _variant(report: ModelReport) -> dict[str, Any]:
    return {
        "file": report.files[0],
        "files": list(report.files),
        "weights": report.weights,
        "kv": report.kv,
        **({} if report.draft_vocab is None else {"draft_vocab": report.draft_vocab}),
        "tensor_errors": {name: round(error, 6) for name, error in report.errors.items()},
        "notes": list(report.notes),
        "parity": dict(report.parity),
    }


def _source(source: GivenModel) -> Mapping[str, Any]:
    checkpoint = source.checkpoint
    return {
        "name": checkpoint.name,
        "sha256": {file.name: sha256_of(file) for file in checkpoint.files},
    }


def files(folder: Path, progress: Progress) -> dict[str, dict[str, Any]]:
    """Return size and hash of every file, by its path in the bundle."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = {}
    for done, path in enumerate(found, 1):
        name = path.relative_to(folder).as_posix()
        facts[name] = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        progress("hashes", done, len(found))
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that was never installed
        return "unknown"


# -- sizes of a decoder without a spec, for formats that need only those ------------------------


@dataclass(frozen=True, slots=True)
class Outline(DecoderSpec):
    """A decoder of which only the sizes are known; its tensors raise UnsupportedArchitecture.

    Attributes:
        numbers: number of values in the checkpoint's tensors.

    """

    numbers: int = 0

    @property
    def parameters(self) -> int:
        """Return the number of values in the checkpoint's tensors."""
        return self.numbers

    def _roles(self) -> Iterator[tuple[str, int, Shape]]:
        raise UnsupportedArchitecture(f"model_type {self.architecture!r} has no spec")
