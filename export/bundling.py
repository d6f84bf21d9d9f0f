"""Writes a bundle: models in their formats, tokenizers, parity, manifest."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from edgedec._support.model_path import OWN_DRAFT, utf8
from edgedec.bundle.manifest import GIT_FILE, GIT_RULE, MANIFEST
from edgedec.errors import CheckpointError, InputError
from edgedec.export import (
    chat_pieces,
    describing,
    draft_vocab,
    formats,
    head_export,
    sample,
)
from edgedec.export import tokenizer as tok
from edgedec.export.atomic import appearing
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.describing import GivenModel
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.job import Exported, ExportJob
from edgedec.export.options import (
    FULL,
    MAX_KL,
    ExportOptions,
    ExportReport,
    ModelReport,
    Progress,
)
from edgedec.export.quantize import BLOCK_SIZES
from edgedec.export.source import open_source
from edgedec.export.target_texts import TargetTexts, calibrate
from edgedec.export.tokenizer import TokenizerContent
from edgedec.hardware.resident import keep_heap_small
from edgedec.models.decoder import DecoderSpec
from edgedec.text.tokenizer import Tokenizer

_log = logging.getLogger("edgedec")
_PARITY_TOKENS = 1024
_SAMPLE_TOKENS = 384
_PARITY_LEAST = 32
# Most positions without --max-context: of a graph, and of a cache of fixed size, in bytes of their
# cosines and sines (16 MiB, or a sixteenth of the weights in int4).
_ANY_LENGTH, _IN_GRAPH, _POSITIONS = {"gguf", "optimum"}, 1 << 24, 16 << 20
_PARAMETERS_PER_BYTE, _FLOAT_BYTES = 32, 4


def write_bundle(options: ExportOptions, progress: Progress) -> ExportReport:
    """See ``edgedec.export.export_bundle``."""
    start = perf_counter()
    keep_heap_small()  # layers of hundreds of megabytes are allocated and freed
    _check(options)
    sources = _sources(options)
    options = _with_context(options, sources)
    head = _head(options, sources[0].checkpoint)
    taps = () if head is None else head.spec.taps
    jobs = {source.role: _jobs(options, source, sources, taps) for source in sources}
    _check_read(options, [job for own in jobs.values() for job in own])
    with appearing(options.out, overwrite=options.overwrite) as folder:
        texts = TargetTexts(sources[0], jobs["target"][0], folder, progress)
        calibrate(sources, jobs, texts)
        draft_vocab.trim(sources, jobs, texts)
        if head is not None:
            head = draft_vocab.of_head(head, sources[0], jobs["target"], texts)
        options = _check_texts(options, texts)
        for source in sources:
            if not (folder / source.tokenizer).exists():  # the pair shares it
                tok.write(source.checkpoint.texts, folder / source.tokenizer)
        chat_pieces.write_pieces(folder / sources[0].tokenizer)  # of the target, which is asked
        reports = tuple(
            _export(source, job, folder, progress)
            for source in sources
            for job in jobs[source.role]
        )
        described = [
            describing.role(source, options, [r for r in reports if r.role == source.role])
            for source in sources
        ]
        manifest = describing.manifest(options, sources, described)
        if head is not None:
            reports = (*reports, head_export.export_head(head, jobs["target"], folder))
            roles = manifest["roles"]
            roles["head"] = head_export.described(reports[-1], head, roles["target"])
        manifest["files"] = describing.files(folder, progress)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
        (folder / GIT_FILE).write_bytes(GIT_RULE)
    size = sum(fact["bytes"] for fact in manifest["files"].values())
    return ExportReport(options.out, size, reports, perf_counter() - start)


def _check(options: ExportOptions) -> None:
    if not options.formats:
        raise InputError(f"no format: expected one or more of {', '.join(formats.names())}")
    if len(set(options.formats)) < len(options.formats):
        raise InputError(f"formats {','.join(options.formats)}: expected each of them once")
    try:
        utf8(options.out)
    except UnicodeDecodeError:  # ONNX Runtime opens no other paths
        raise InputError(f"--out {options.out}: expected a path in UTF-8") from None
    if options.block_size not in (None, *BLOCK_SIZES):
        sizes = ", ".join(map(str, BLOCK_SIZES))
        raise InputError(f"--block-size {options.block_size}: expected one of {sizes}")
    _check_meant(options)
    if options.kv != "fp32" and "onnx" not in options.formats:
        raise InputError(
            f"--kv {options.kv} is for onnx: leave it out; of gguf choose it with --kv when you run"
            " the bundle"
        )
    if options.draft_weights is not None and options.draft is None:
        raise InputError(
            f"--draft-weights {options.draft_weights} is for a draft: add --draft MODEL"
        )
    for name in options.formats:
        formats.exporter(name).check(options)


def _check_meant(options: ExportOptions) -> None:
    """Refuse options of formats that are not exported."""
    given = (
        (
            f"--block-size {options.block_size}",
            options.block_size is not None,
            ("onnx", "onnx-static", "coreml"),
        ),
        ("--batch-invariant", options.batch_invariant, ("onnx",)),
        ("--head", options.head is not None, ("onnx",)),
        (f"--draft-vocab {options.draft_vocab}", _trims(options), ("onnx",)),
        ("--form", options.form is not None, ("coreml",)),
        ("--rows", options.rows is not None, ("coreml",)),
        ("--static-rows", options.static_rows is not None, ("onnx-static",)),
        ("--static-context", options.static_context is not None, ("onnx-static",)),
        (
            f"--static-activations {options.static_activations}",
            options.static_activations is not None,
            ("onnx-static",),
        ),
    )
    for flag, chosen, formats_of_it in given:
        if chosen and not set(formats_of_it) & set(options.formats):
            raise InputError(f"{flag} is for {' and '.join(formats_of_it)}: leave it out")


def _check_read(options: ExportOptions, jobs: Sequence[ExportJob]) -> None:
    """Refuse options that no model of this export reads, and models that a format cannot hold."""
    stored = {(job.format, job.weights) for job in jobs}
    blocks = {(name, weights) for name in ("onnx", "onnx-static", "coreml")
              for weights in ("auto", "int4")} | {("onnx", "int8")}  # fmt: skip
    given = (
        (
            f"--block-size {options.block_size}",
            options.block_size is not None and not blocks & stored,
            "weights in int4, and in onnx int8",
        ),
        (
            f"--max-kl {options.max_kl:g}",
            options.max_kl != MAX_KL and not any(map(formats.is_measured, jobs)),
            "--weights auto",
        ),
        (
            "--imatrix-text",
            options.imatrix_text is not None and not any(map(formats.is_weighed, jobs)),
            "weights of 6 bits or fewer in gguf",
        ),
        (
            "--parity-text",
            options.parity_text is not None and not _compared(options),
            "the comparison that --no-parity leaves out",
        ),
    )
    for flag, dropped, purpose in given:
        if dropped:
            raise InputError(f"{flag} is for {purpose}: leave it out")
    for job in jobs:
        formats.check_job(job)


def _compared(options: ExportOptions) -> bool:
    """Return whether a sample text is read: to compare on, or for the scales of an int8 cache."""
    return options.parity or options.kv == "int8"


def _sources(options: ExportOptions) -> list[GivenModel]:
    """Open the target and the draft, whose tokenizer gets a folder only if it differs."""
    target = _open(options, options.target)
    limit = target.spec.max_context
    if options.max_context is not None and not 1 <= options.max_context <= limit:
        raise InputError(
            f"--max-context {options.max_context}: expected 1 to {limit}, what"
            f" {target.name} was trained for"
        )
    if options.static_context is not None and not 1 <= options.static_context <= limit:
        raise InputError(
            f"--static-context {options.static_context}: expected 1 to {limit}, what"
            f" {target.name} was trained for"
        )
    sources = [GivenModel("target", target, TokenizerContent(target.texts), "tokenizer")]
    if options.draft is not None:
        draft = _open(options, options.draft)
        content = TokenizerContent(draft.texts)
        differs = sources[0].content.difference(content)
        folder = "draft-tokenizer" if differs else "tokenizer"
        note = f"another tokenizer, which lowers acceptance: {differs}" if differs else ""
        _warn(target, draft, note)
        sources.append(GivenModel("draft", draft, content, folder, note))
    for source in sources:
        rows = source.checkpoint.spec.vocab_size
        if source.content.vocab_size > rows:
            raise CheckpointError(
                f"{source.checkpoint.path}: the tokenizer has {source.content.vocab_size} ids,"
                f" the model only {rows}"
            )
    return sources


def _with_context(options: ExportOptions, sources: list[GivenModel]) -> ExportOptions:
    """Return the options with a context that every format can have.

    A context that was asked for is left as it is, and a shorter one is noted with the target.
    """
    target, spec = sources[0], sources[0].checkpoint.spec
    if options.max_context is not None or not any(spec.ropes):
        return options
    most = min(_longest(form, spec) for form in options.formats)
    if most >= spec.max_context:
        return options
    note = f"a context of {most} of {spec.max_context} tokens: --max-context asks for another"
    sources[0] = dataclasses.replace(target, note=note)
    return dataclasses.replace(options, max_context=most)


def _longest(form: str, spec: DecoderSpec) -> int:
    """Return the most tokens of a format's texts without --max-context."""
    if form in _ANY_LENGTH:
        return spec.max_context
    if form == "onnx":
        return _IN_GRAPH
    ropes = [rope for rope in spec.ropes if rope is not None]
    kinds = sum(rope not in ropes[:place] for place, rope in enumerate(ropes))
    per_token = kinds * spec.rotary_dim * _FLOAT_BYTES
    return max(_POSITIONS, spec.parameters // _PARAMETERS_PER_BYTE) // per_token


def _head(options: ExportOptions, target: Checkpoint) -> HeadCheckpoint | None:
    """Open the head that was given, or the one that the target's checkpoint carries."""
    head = None
    if options.head is not None:
        head = HeadCheckpoint.open(options.head, target.spec)
        if head.spec.borrows and options.kv != "fp32":
            raise InputError(
                f"--kv {options.kv}: {options.head} reads the target's keys and values, in fp32"
                " alone: leave --kv or --head out"
            )
    elif options.mtp and "onnx" in options.formats:
        head = HeadCheckpoint.inside(target)
    if options.draft is None and _trims(options) and (head is None or head.spec.own_output):
        raise InputError(f"--draft-vocab {options.draft_vocab} is for a draft: add --draft MODEL")
    return head


def _trims(options: ExportOptions) -> bool:
    """Return whether the user says how many tokens are drafted."""
    return options.draft_vocab not in (None, FULL)


def _warn(target: Checkpoint, draft: Checkpoint, note: str) -> None:
    """Log, before work begins, what makes a draft a poor one."""
    if draft.path.resolve() == target.path.resolve():
        _log.warning(OWN_DRAFT)
    if note:
        _log.warning(
            "the draft %s has %s; a model of the target's family drafts better", draft.name, note
        )


def _open(options: ExportOptions, path: Path) -> Checkpoint:
    return open_source(path, formats.outline_of(options.formats))


def _jobs(
    options: ExportOptions, source: GivenModel, sources: list[GivenModel], taps: tuple[int, ...]
) -> list[ExportJob]:
    """Return one job per format; the target's shows the states of ``taps``."""
    spec = source.checkpoint.spec.within(options.max_context)
    used = min(spec.vocab_used, source.content.vocab_size)
    spec = dataclasses.replace(spec, vocab_used=used)
    # Models of one family pad their vocabularies differently; a pair's logits need equal columns.
    columns = max(
        other.checkpoint.spec.vocab_size for other in sources if other.tokenizer == source.tokenizer
    )
    tokens: Sequence[int] = ()
    if _compared(options):
        tokens = sample_tokens(options, source.checkpoint.texts)[: spec.max_context]
    given = [("--weights", options.weights)]
    if source.role == "draft":
        given.insert(0, ("--draft-weights", options.draft_weights))
    jobs: list[ExportJob] = []
    rounded = source.checkpoint.rounded
    known = f"its weights were {rounded} already: what is exported cannot be better"
    for name in options.formats:
        chosen = [formats.weights_of(name, text, option, options.formats) for option, text in given]
        default = formats.exporter(name).DEFAULT_WEIGHTS
        job = ExportJob(
            role=source.role,
            format=name,
            checkpoint=source.checkpoint,
            spec=spec,
            tensors=source.checkpoint.tensors,
            content=source.content,
            columns=columns,
            weights=next((weights for weights in chosen if weights), default),
            tokens=tuple(tokens),
            options=options,
            taps=taps if source.role == "target" else (),
            notes=(known,) if rounded and not jobs else (),
        )
        jobs.append(job)
    return jobs


def _check_texts(options: ExportOptions, texts: TargetTexts) -> ExportOptions:
    """Return the options as the manifest says them: without texts, nothing was calibrated."""
    if texts.made:
        return options
    if options.calibration_text is not None:
        raise InputError(
            "--calibration-text is for int4 in onnx and coreml, 6 bits or fewer in gguf,"
            " --static-activations and --draft-vocab: leave it out"
        )
    return dataclasses.replace(options, calibration="none")


def sample_tokens(options: ExportOptions, tokenizer: Path) -> list[int]:
    """Return tokens to compare on, from the user's text or the built-in one; or InputError."""
    text, name, longest = sample.TEXT, "the built-in text", _SAMPLE_TOKENS
    if options.parity_text is not None:
        name, longest = str(options.parity_text), _PARITY_TOKENS
        text = sample.read_text(options.parity_text)
    longest = min(options.max_context or longest, longest)
    tokens = Tokenizer.load(tokenizer).encode(text)[:longest]
    if len(tokens) < _PARITY_LEAST:
        raise InputError(
            f"{name} gives {len(tokens)} tokens to compare on, expected {_PARITY_LEAST} or more"
        )
    return tokens


def _export(source: GivenModel, job: ExportJob, bundle: Path, progress: Progress) -> ModelReport:
    exporter, folder = formats.exporter(job.format), bundle / job.role
    folder.mkdir(exist_ok=True)
    written: Exported = exporter.write(job, folder, progress)
    figures = exporter.parity(job, folder, progress) if job.options.parity else {}
    return ModelReport(
        role=job.role,
        name=job.checkpoint.name,
        architecture=job.spec.architecture,
        parameters=job.checkpoint.spec.parameters,
        size_bytes=sum((folder / name).stat().st_size for name in written.files),
        format=job.format,
        weights=written.weights or job.weights,
        kv=written.kv,
        files=tuple(f"{job.role}/{name}" for name in written.files),
        columns=written.vocab_size,
        vocab_used=job.spec.vocab_used,
        errors=written.errors,
        notes=(*filter(None, [source.note]), *job.checkpoint.notes, *job.notes, *written.notes),
        max_context=written.max_context,
        parity=figures,
        draft_vocab=len(job.drafted) or None,
    )
