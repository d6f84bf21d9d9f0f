"""A grown head drafts for a grown target what the small one drafts for the small target."""

from __future__ import annotations

import json
from pathlib import Path

import demo_head
import pytest

from benchmarks.models.grow import Shape, grow
from benchmarks.models.grow_head import grow_head
from edgedec.errors import CheckpointError
from edgedec.export import ExportOptions, export_bundle

TARGET = demo_head.MODELS / "target"


def agreement(bundle: Path) -> list[float]:
    roles = json.loads((bundle / "manifest.json").read_text("utf-8"))["roles"]
    figures = roles["head"]["variants"]["onnx"]["parity"]
    return [figures[f"agreement_{depth}"] for depth in (1, 2, 3)]


def test_it_agrees_as_often(tmp_path: Path) -> None:
    big, head = tmp_path / "big", tmp_path / "head"
    grow(TARGET, big, Shape(768, 1536, 8, 12, 6, 4096), dtype="float32")
    grow_head(demo_head.MODELS / "head", TARGET, big, head)
    out = tmp_path / "bundle"
    export_bundle(ExportOptions(big, out, head=head, weights="fp32", calibration="none"))
    # Weights in float16, as the small one's, and sums in another order.
    assert agreement(out) == pytest.approx(agreement(demo_head.bundle()), abs=0.02)
    with pytest.raises(CheckpointError, match="made for this target"):
        export_bundle(
            ExportOptions(TARGET, tmp_path / "b", head=head, weights="fp32", calibration="none")
        )
