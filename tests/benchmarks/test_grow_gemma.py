"""A grown Gemma 4 and its assistant compute what the small ones compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from assistant_case import NEAR, WHOLE, TargetFormulas, checkpoint, target_config
from safetensors.numpy import load_file, save_file
from tiny_models import random_stored, save_checkpoint

from benchmarks.models.grow_gemma import GemmaShape, grow_assistant, grow_gemma
from edgedec.errors import InputError
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

SHAPE = GemmaShape(
    hidden_size=256, intermediate_size=96, num_hidden_layers=12, num_attention_heads=8
)
TOKENS = np.random.default_rng(2).integers(0, 96, 24).tolist()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pair; values that float16 holds, as a grown one's."""
    folder = tmp_path_factory.mktemp("grown") / "small"
    stated = target_config(hidden_size_per_layer_input=8, vocab_size_per_layer_input=96)
    weights = {k: v.astype(np.float16) for k, v in random_stored(spec_for(stated)).items()}
    save_checkpoint(folder, stated, weights)
    checkpoint("assistant", folder / "head")
    return folder


@pytest.fixture(scope="module")
def grown(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown") / "large"
    grow_gemma(source, folder, SHAPE)
    grow_assistant(source / "head", folder / "head", SHAPE.hidden_size)
    return folder


def logits(folder: Path) -> np.ndarray:
    opened = Checkpoint.open(folder)
    return np.asarray(Reference(opened.spec, opened.tensors).logits(TOKENS))


def drafted(folder: Path) -> np.ndarray:
    return np.array(TargetFormulas(folder, folder / "head").logits(TOKENS, 5, 3))


def test_the_same_function(source: Path, grown: Path) -> None:
    assert np.abs(logits(source) - logits(grown)).max() < 2e-3
    assert np.abs(drafted(source) - drafted(grown)).max() < 2e-2
    stated = json.loads((grown / "config.json").read_text("utf-8"))
    assert stated["layer_types"] == [NEAR] * 4 + [WHOLE] * 2 + [NEAR] * 4 + [WHOLE] * 2
    spec = Checkpoint.open(grown).spec
    assert [spec.lender(layer) for layer in range(6, 12)] == [3] * 4 + [5] * 2
    # The controls: a channel of the stream that is written to, by the target and by the assistant.
    for file, name in (
        (grown, "model.layers.3.mlp.down_proj.weight"),
        (grown / "head", "post_projection.weight"),
    ):
        tensors = load_file(file / "model.safetensors")
        changed = {**tensors, name: tensors[name].copy()}
        changed[name][100] = 0.5
        save_file(changed, file / "model.safetensors")
        assert np.abs(drafted(source) - drafted(grown)).max() > 0.1
        save_file(tensors, file / "model.safetensors")


def test_a_new_layer_that_scales_is_noticed(source: Path, grown: Path) -> None:
    tensors = load_file(grown / "model.safetensors")
    name = "model.layers.0.layer_scalar"
    assert tensors[name] == 1
    save_file({**tensors, name: tensors[name] * 2}, grown / "model.safetensors")
    assert np.abs(logits(source) - logits(grown)).max() > 0.1


def test_what_cannot_grow_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hidden_size is 100, expected a multiple"):
        grow_gemma(source, tmp_path, GemmaShape(hidden_size=100))
