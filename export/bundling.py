"""Puts a bundle together: models, tokenizer, parity, manifest."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from edgedec.bundle import MANIFEST, SCHEMA_VERSION, sha256_of
from edgedec.errors import CheckpointError, InputError
from edgedec.export import sample
from edgedec.export import tokenizer as tok
from edgedec.export.atomic import appearing
from edgedec.export.calibration import kv_scales
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.onnx import KV_TYPES, GraphOptions, context, write_model
from edgedec.export.options import ExportOptions, ExportReport, ModelReport, Progress
from edgedec.export.parity import ParityRun
from edgedec.export.slices import check_cache
from edgedec.export.tensors import CountedTensors, PaddedTensors, TensorReader
from edgedec.export.tokenizer import TokenizerContent
from edgedec.models.decoder import DecoderSpec
from edgedec.text import Tokenizer

# Defaults of a checkpoint that a decoder here can follow.
_PARITY_TOKENS = 1024
_SAMPLE_TOKENS = 384
_PARITY_LEAST = 32
_PARITY_CHARACTERS = 1 << 20
_GENERATION = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "do_sample")


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """One model to export."""

    role: str
    checkpoint: Checkpoint
    spec: DecoderSpec
    tensors: TensorReader
    options: GraphOptions
    check_parity: bool


def write_bundle(options: ExportOptions, progress: Progress) -> ExportReport:
    """See ``edgedec.export.export_bundle``."""
    start = perf_counter()
    target = Checkpoint.open(options.target)
    draft = None if options.draft is None else Checkpoint.open(options.draft)
    content = TokenizerContent(target.path)
    if draft is not None:
        content.check_same(TokenizerContent(draft.path))
    jobs = _jobs(options, target, draft, content)
    tokens = sample_tokens(options, target.path)
    with appearing(options.out, overwrite=options.overwrite) as folder:
        _copy_tokenizer(target.path, folder / "tokenizer")
        reports = tuple(_export(job, folder / job.role, tokens, progress) for job in jobs)
        manifest = _manifest(options, jobs, reports, content)
        manifest["files"] = _files(folder, progress)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    size = sum(fact["bytes"] for fact in manifest["files"].values())
    return ExportReport(options.out, size, reports, perf_counter() - start)


def _jobs(
    options: ExportOptions, target: Checkpoint, draft: Checkpoint | None, content: TokenizerContent
) -> list[_Job]:
    limit = target.spec.max_context
    if options.max_context is not None and not 1 <= options.max_context <= limit:
        raise InputError(
            f"--max-context {options.max_context}: expected 1 to {limit}, what"
            f" {target.name} was trained for"
        )
    if options.kv not in KV_TYPES:
        raise InputError(f"kv {options.kv!r} is not a format; there are {', '.join(KV_TYPES)}")
    check_cache(options.kv)
    found = [("target", target, options.weights)]
    if draft is not None:
        found.append(("draft", draft, options.draft_weights or options.weights))
    # Families pad their vocabularies differently; logits of both must have the same columns.
    vocab_size = max(checkpoint.spec.vocab_size for _, checkpoint, _ in found)
    jobs = []
    for role, checkpoint, weights in found:
        spec, tensors = _padded(checkpoint, vocab_size, content)
        graph = GraphOptions(
            name=checkpoint.name,
            eos_ids=checkpoint.eos_ids,
            weights=weights,
            kv=options.kv,
            block_size=options.block_size,
            max_context=options.max_context,
        )
        jobs.append(_Job(role, checkpoint, spec, tensors, graph, options.parity))
    return jobs


def _padded(
    checkpoint: Checkpoint, vocab_size: int, content: TokenizerContent
) -> tuple[DecoderSpec, TensorReader]:
    """The decoder with ``vocab_size`` rows, of which those that are tokens may win."""
    spec = checkpoint.spec
    if content.vocab_size > spec.vocab_size:
        raise CheckpointError(
            f"{checkpoint.path}: the tokenizer has {content.vocab_size} ids,"
            f" the model only {spec.vocab_size}"
        )
    wide = dataclasses.replace(
        spec, vocab_size=vocab_size, vocab_used=min(spec.vocab_used, content.vocab_size)
    )
    padded = {wide.name(role): vocab_size for role in ("embed", "head")}
    return wide, PaddedTensors(checkpoint.tensors, padded)


def sample_tokens(options: ExportOptions, tokenizer: Path) -> list[int]:
    """What calibration and parity read: the beginning of the user's text, or of the built-in one.

    Raises:
        InputError: the text cannot be read, or is too short to tell anything.

    """
    text, name, longest = sample.TEXT, "the built-in text", _SAMPLE_TOKENS
    if options.parity_text is not None:
        name, longest = str(options.parity_text), _PARITY_TOKENS
        try:
            with options.parity_text.open(encoding="utf-8") as file:
                text = file.read(_PARITY_CHARACTERS)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name} cannot be read as UTF-8 text: {error}") from None
    longest = min(options.max_context or longest, longest)
    tokens = Tokenizer.load(tokenizer).encode(text)[:longest]
    if len(tokens) < _PARITY_LEAST:
        raise InputError(
            f"{name} gives {len(tokens)} tokens to compare on, expected {_PARITY_LEAST} or more"
        )
    return tokens


def _export(job: _Job, folder: Path, tokens: list[int], progress: Progress) -> ModelReport:
    folder.mkdir()
    if job.options.kv == "int8":
        job = _calibrated(job, tokens, progress)
    total = job.spec.parameters
    tensors = CountedTensors(job.tensors, lambda done: progress(job.role, min(done, total), total))
    errors = write_model(job.spec, tensors, folder, job.options)
    progress(job.role, total, total)
    return ModelReport(
        role=job.role,
        name=job.checkpoint.name,
        architecture=job.spec.architecture,
        parameters=job.checkpoint.spec.parameters,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        errors=errors,
        parity=_parity(job, folder, tokens, progress) if job.check_parity else {},
    )


def _calibrated(job: _Job, tokens: list[int], progress: Progress) -> _Job:
    stage = f"{job.role} calibration"
    scales = kv_scales(
        job.spec,
        job.tensors,
        tokens[: job.spec.max_context],
        lambda done, total: progress(stage, done, total),
    )
    return dataclasses.replace(job, options=dataclasses.replace(job.options, kv_scales=scales))


def _parity(
    job: _Job, folder: Path, tokens: list[int], progress: Progress
) -> Mapping[str, int | float]:
    run = ParityRun(job.spec, job.tensors, folder, job.options)
    stage = f"{job.role} parity"
    read = tokens[: job.spec.max_context]
    found = run.compare(read, lambda done, total: progress(stage, done, total))
    found.check(job.role, job.options.weights, job.options.kv)
    return dataclasses.asdict(found)


def _copy_tokenizer(source: Path, folder: Path) -> None:
    folder.mkdir()
    for name in tok.FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _manifest(
    options: ExportOptions,
    jobs: list[_Job],
    reports: tuple[ModelReport, ...],
    content: TokenizerContent,
) -> dict[str, Any]:
    target = jobs[0].checkpoint
    return {
        "schema_version": SCHEMA_VERSION,
        "created_by": f"edgedec {_version('edgedec')}",
        "roles": {
            job.role: _role(job, report, options) for job, report in zip(jobs, reports, strict=True)
        },
        "tokenizer": {"file": "tokenizer/tokenizer.json", "content_sha256": content.sha256},
        "generation": {
            name: target.generation[name]
            for name in _GENERATION
            if isinstance(target.generation.get(name), int | float)
        },
        "provenance": {
            "sources": {job.role: _source(job.checkpoint) for job in jobs},
            "options": {
                "block_size": options.block_size,
                "max_context": options.max_context,
                "parity_text": None if options.parity_text is None else options.parity_text.name,
            },
            "versions": {name: _version(name) for name in ("numpy", "onnx", "onnxruntime")},
        },
    }


def _role(job: _Job, report: ModelReport, options: ExportOptions) -> dict[str, Any]:
    spec = job.spec
    sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab_size", "vocab_used")
    return {
        "format": "onnx",
        "file": f"{job.role}/model.onnx",
        "files": [f"{job.role}/model.onnx", f"{job.role}/model.onnx.data"],
        "weights": job.options.weights,
        "kv": job.options.kv,
        "architecture": spec.architecture,
        "source": job.checkpoint.name,
        "licence": options.licence or job.checkpoint.licence,
        "dims": {
            **{name: getattr(spec, name) for name in sizes},
            "max_context": context(spec, job.options),
            "parameters": report.parameters,
        },
        "tensor_errors": {name: round(error, 6) for name, error in report.errors.items()},
        "parity": dict(report.parity),
    }


def _source(checkpoint: Checkpoint) -> Mapping[str, Any]:
    files = sorted({"config.json", "tokenizer.json", *checkpoint.tensors.files})
    return {
        "name": checkpoint.name,
        "sha256": {name: sha256_of(checkpoint.path / name) for name in files},
    }


def _files(folder: Path, progress: Progress) -> dict[str, dict[str, Any]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = {}
    for done, path in enumerate(files, 1):
        name = path.relative_to(folder).as_posix()
        facts[name] = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        progress("hashes", done, len(files))
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that was never installed
        return "unknown"
