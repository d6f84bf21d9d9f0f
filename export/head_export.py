"""Exports a head beside its target, and measures whether it is wired as its target expects."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedec.export import formats, wiring
from edgedec.export.agreement import POOR, agreement
from edgedec.export.formats.onnx import onnx_options
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.job import ExportJob
from edgedec.export.onnx import GraphOptions
from edgedec.export.onnx.heads import FILES, write_head
from edgedec.export.options import ModelReport

_log = logging.getLogger("edgedec")
_FORMAT = "onnx"


def export_head(head: HeadCheckpoint, jobs: Sequence[ExportJob], bundle: Path) -> ModelReport:
    """Write a head's graphs into the target's folder of a bundle, and report on it.

    Args:
        jobs: of the target, whose files are there; one is in ONNX.

    """
    job = next(job for job in jobs if job.format == _FORMAT)
    folder = bundle / job.role
    target = job.padded()[0]
    # A head's own limit is that of its training texts; positions are relative.
    layer = dataclasses.replace(head.spec.layer, max_context=target.max_context)
    spec = head.spec.changed(layer=layer, target_vocab=target.vocab_size)
    weights = onnx_options(job).weights
    options = GraphOptions(
        name=head.path.name,
        eos_ids=job.checkpoint.eos_ids,
        weights=weights,
        block_size=job.block_size,
        max_context=job.options.max_context,
    )
    errors = write_head(spec, head.tensors, head.ids, folder, options)
    texts = job.texts or (job.tokens,)
    figures: dict[str, float] = {}
    if job.options.parity:
        found = agreement(folder, texts)
        wiring.check(head, spec, target, folder, options, texts, found)
        _warn(found[0], spec.kind)
        figures = {f"agreement_{depth}": share for depth, share in enumerate(found, 1)}
        others = [one.format for one in jobs if one.format != _FORMAT]
        figures |= _elsewhere(others, spec.taps, folder, texts, found[0])
    return ModelReport(
        role="head",
        name=head.path.name,
        architecture=spec.kind,
        parameters=spec.parameters,
        size_bytes=sum((folder / name).stat().st_size for name in FILES),
        format=job.format,
        weights=weights,
        kv="fp32",
        files=tuple(f"{job.role}/{name}" for name in FILES),
        columns=spec.target_vocab,
        vocab_used=len(head.ids),
        errors=errors,
        notes=(spec.note,) if spec.note else (),
        parity=figures,
    )


def _warn(share: float, kind: str) -> None:
    """Log that a head drafts nothing useful, if so few of its first choices are the target's."""
    if share < POOR:
        _log.warning(
            "the head's first choice is the target's in %.0f%% of the places, which drafts nothing"
            " useful: was it made for this target, and does its config.json name the layers it"
            " reads as %s does?",
            100 * share, kind,
        )  # fmt: skip


def _elsewhere(
    others: Sequence[str],
    taps: Sequence[int],
    folder: Path,
    texts: Sequence[Sequence[int]],
    share: float,
) -> dict[str, float]:
    """Return the share at depth 1 for the target in other formats, if they show its states.

    Args:
        others: the formats.
        taps: layers before which the head reads the stream.
        folder, texts: as for ``agreement``.
        share: of the target in ONNX.

    """
    found = {}
    for name in others:
        opened = getattr(formats.exporter(name), "opened", None)
        if opened is None:
            continue
        model = opened(folder)
        model.show(taps)
        if not model.capabilities.taps:
            model.close()
            continue
        found[f"agreement_{name}"] = here = agreement(folder, texts, model)[0]
        if here < share - wiring.BETTER:
            _log.warning(
                "the head's first choice is the target's in %.0f%% of the places in %s, and in"
                " %.0f%% in onnx: use --format onnx", 100 * here, name, 100 * share,
            )  # fmt: skip
    return found


def described(report: ModelReport, head: HeadCheckpoint, target: dict[str, Any]) -> dict[str, Any]:
    """Return the head's role in the manifest, whose tokenizer is the target's."""
    layer = head.spec.layer
    of_cache = () if head.spec.borrows else ("kv_heads", "head_dim")
    sizes = ("layers", "hidden", "ffn", "heads", *of_cache)
    return {
        "architecture": report.architecture,
        "source": report.name,
        "licence": None,
        "dims": {
            **{name: getattr(layer, name) for name in sizes},
            "vocab_size": report.columns,
            "vocab_used": report.vocab_used,
            "max_context": target["dims"]["max_context"],
            "parameters": report.parameters,
        },
        "taps": list(head.spec.taps),
        "tokenizer": target["tokenizer"],
        "variants": {
            report.format: {
                "file": report.files[0],
                "files": [*report.files, "target/model.onnx.data"],
                "weights": report.weights,
                "kv": report.kv,
                "tensor_errors": {name: round(e, 6) for name, e in report.errors.items()},
                "notes": list(report.notes),
                "parity": dict(report.parity),
            }
        },
    }
