"""A grown head drafts for a grown target what the small one drafts for the small target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import demo_head
import numpy as np
import pytest
from heads_case import LAYER
from safetensors.numpy import load_file, save_file
from tiny_models import random_tensors, save_checkpoint, tiny_config

from benchmarks.models.grow import Shape, grow
from benchmarks.models.grow_head import grow_head
from edgedec.errors import CheckpointError
from edgedec.export import ExportOptions, export_bundle
from edgedec.models.heads import head_for
from edgedec.models.registry import spec_for

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


def test_three_query_heads_that_share_a_key_head_stay_together(tmp_path: Path) -> None:
    """A published small target has nine on three."""
    wide = {"num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = tiny_config(num_hidden_layers=8, **wide)
    small = save_checkpoint(tmp_path / "small", config, random_tensors(spec_for(config)))
    grow(small, tmp_path / "big", Shape(128, 256, 8, 24, 8, 96), block=32)
    head = {
        **json.loads((demo_head.MODELS / "head" / "config.json").read_text("utf-8")),
        **LAYER,
        **wide,
    }
    head |= {"target_hidden_size": 64, "draft_vocab_size": 40, "tie_word_embeddings": False}
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text(json.dumps(head), "utf-8")
    save_file(tensors_of(head, config), tmp_path / "head" / "model.safetensors")
    grow_head(tmp_path / "head", small, tmp_path / "big", tmp_path / "grown")
    grown = json.loads((tmp_path / "grown" / "config.json").read_text("utf-8"))
    assert (grown["num_attention_heads"], grown["num_key_value_heads"]) == (24, 8)
    before = load_file(tmp_path / "head" / "model.safetensors")["midlayer.self_attn.o_proj.weight"]
    after = load_file(tmp_path / "grown" / "model.safetensors")["midlayer.self_attn.o_proj.weight"]
    # The first key head's queries come first, then those of the second; what is new adds nothing.
    assert (after[:64, :48] == before[:, :48].astype(after.dtype)).all()
    assert (after[:64, 48:96] == before[:, 48:].astype(after.dtype)).all()
    assert not after[:, 96:].any()
    assert not after[64:].any()


def tensors_of(head: dict[str, Any], target: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random weights of a head, by the names that its authors give them."""
    rng = np.random.default_rng(0)
    spec = head_for(head, spec_for(target))
    found = {
        spec.stored[name][0].name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in spec.tensors().items()
    }
    return {**found, "d2t": np.zeros(40, np.int64)}
