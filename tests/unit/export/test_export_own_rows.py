"""Which exported targets have attention with rows of its own, and whether somebody asked for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from tiny_checkpoints import noisy_checkpoint

from edgedec.export import ExportOptions, export_bundle
from edgedec.export.formats import onnx as onnx_format
from edgedec.runtimes.onnx.model import OnnxModel


@pytest.mark.parametrize(
    ("least", "options", "own", "asked"),
    [
        (0, {}, True, False),
        (0, {"batch_invariant": True}, True, True),
        (1 << 40, {}, False, True),
        (1 << 40, {"batch_invariant": True}, True, True),
        (0, {"weights": "fp32"}, False, True),
        (0, {"kv": "int8"}, False, True),
    ],
)
def test_a_target_of_middling_size_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    least: int,
    options: dict[str, Any],
    own: bool,
    asked: bool,
) -> None:
    monkeypatch.setattr(onnx_format, "_LEAST_PADDED", least)
    export_bundle(
        ExportOptions(
            target=noisy_checkpoint(tmp_path / "target", seed=0),
            draft=noisy_checkpoint(tmp_path / "draft", seed=1),
            out=tmp_path / "bundle",
            parity=False,
            calibration="none",
            **{"weights": "int8", **options},
        )
    )
    for role, has in (("target", own), ("draft", False)):
        graph = onnx.load(tmp_path / "bundle" / role / "model.onnx", load_external_data=False)
        names = {one.name for one in graph.graph.input}
        assert ({"attention_rows", "computed_rows"} <= names) == has
        (entry,) = graph.metadata_props
        assert json.loads(entry.value).get("padding") == (
            None if asked or role == "draft" else "where cheap"
        )
        model = OnnxModel.load(tmp_path / "bundle" / role, threads=1, batch_invariant=False)
        assert model.graph.facts.padding_asked == (asked or role == "draft")
