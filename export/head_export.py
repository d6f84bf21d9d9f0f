"""Exports a head beside its target, and measures whether it is wired as its target expects."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

from edgedec.export import wiring
from edgedec.export.agreement import POOR, agreement
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.job import ExportJob
from edgedec.export.onnx import GraphOptions
from edgedec.export.onnx.heads import FILES, write_head
from edgedec.export.options import ModelReport
from edgedec.models.heads import HeadSpec

_log = logging.getLogger("edgedec")


def export_head(head: HeadCheckpoint, job: ExportJob, bundle: Path) -> ModelReport:
    """Write a head's graphs into the target's folder of a bundle, and report on it.

    Args:
        head: the checkpoint.
        job: of the target in ONNX, whose graph is there.
        bundle: the folder.

    """
    folder = bundle / job.role
    target = job.padded()[0]
    # A head's own limit is that of its training texts; positions are relative.
    layer = dataclasses.replace(head.spec.layer, max_context=target.max_context)
    spec = head.spec.changed(layer=layer, target_vocab=target.vocab_size)
    options = GraphOptions(
        name=head.path.name,
        eos_ids=job.checkpoint.eos_ids,
        weights=job.weights,
        block_size=job.block_size,
        max_context=job.options.max_context,
    )
    errors = write_head(spec, head.tensors, head.ids, folder, options)
    texts = job.texts or (job.tokens,)
    found = agreement(folder, texts) if job.options.parity else []
    if found:
        wiring.check(head, spec, target, folder, options, texts, found)
    if found and found[0] < POOR:
        _log.warning(
            "the head's first choice is the target's in %.0f%% of the places, which drafts nothing"
            " useful: was it made for this target, and does its config.json name the layers it"
            " reads as %s does?",
            100 * found[0], spec.kind,
        )  # fmt: skip
    return ModelReport(
        role="head",
        name=head.path.name,
        architecture=spec.kind,
        parameters=_parameters(spec),
        size_bytes=sum((folder / name).stat().st_size for name in FILES),
        format=job.format,
        weights=job.weights,
        kv="fp32",
        files=tuple(f"{job.role}/{name}" for name in FILES),
        columns=spec.target_vocab,
        vocab_used=len(head.ids),
        errors=errors,
        notes=(spec.note,) if spec.note else (),
        parity={f"agreement_{depth}": share for depth, share in enumerate(found, 1)},
    )


def described(report: ModelReport, head: HeadCheckpoint, target: dict[str, Any]) -> dict[str, Any]:
    """Return the head's role in the manifest, whose tokenizer is the target's."""
    layer = head.spec.layer
    sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim")
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


def _parameters(spec: HeadSpec) -> int:
    return sum(math.prod(shape) for shape in spec.tensors().values())
