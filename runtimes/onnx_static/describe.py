"""Describes graphs of static shape for people: their widths and their cache."""

from __future__ import annotations

from pathlib import Path

from edgedec.bundle.onnx_file import read_model_file
from edgedec.runtimes.onnx_static.facts import StaticFacts


def describe(path: Path) -> list[str]:
    """Return lines about the graphs of a model.

    Raises:
        BundleError: it is damaged.

    """
    facts = StaticFacts.parse(read_model_file(path).metadata, str(path))
    widths = ", ".join(map(str, facts.rows))
    integer = f"products of {facts.activations} activations with int8 weights"
    return [
        f"graphs of static shape: passes of {widths} rows, a prompt in chunks of {facts.read_rows}",
        f"context {facts.max_context} tokens, cache float32{list(facts.cache)}",
        *([integer] if facts.activations else []),
    ]
