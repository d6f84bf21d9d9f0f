"""A grown hybrid and its MTP layer compute what the small ones compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import qwen_mtp_case
from safetensors.numpy import load_file, save_file

from benchmarks.models.grow_hybrid import HybridShape, grow_hybrid
from edgedec.errors import InputError
from edgedec.models.registry import spec_for

SHAPE = HybridShape(
    hidden_size=128, intermediate_size=192, num_hidden_layers=8, num_attention_heads=12,
    num_key_value_heads=4, linear_num_key_heads=4, linear_num_value_heads=8,
)  # fmt: skip
TOKENS = np.random.default_rng(2).integers(0, 96, 24).tolist()


def rows(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The target's logits, and its head's; of the source's columns."""
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = {k: v.astype(np.float32) for k, v in load_file(folder / "model.safetensors").items()}
    formulas = qwen_mtp_case.Formulas(tensors, stated)
    states = formulas.states(TOKENS)
    embedded = tensors["model.embed_tokens.weight"]
    return states @ embedded.T, formulas.mtp(TOKENS[1:], states[:-1])[0]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose values float16 holds, as a grown one's."""
    stated = qwen_mtp_case.config()
    tensors = {k: v.astype(np.float16) for k, v in qwen_mtp_case.weights(stated).items()}
    return qwen_mtp_case.checkpoint(tmp_path_factory.mktemp("grown") / "small", tensors)


def off(source: Path, grown: Path) -> list[float]:
    pairs = zip(rows(source), rows(grown), strict=True)
    return [float(np.abs(few - many).max()) for few, many in pairs]


def test_the_same_function(source: Path, tmp_path: Path) -> None:
    grow_hybrid(source, tmp_path / "large", SHAPE)
    assert max(off(source, tmp_path / "large")) < 2e-3
    grown = spec_for(json.loads((tmp_path / "large" / "config.json").read_text("utf-8")))
    before = spec_for(json.loads((source / "config.json").read_text("utf-8")))
    attends, small = (
        [one.mixer(at) is None for at in range(one.layers)] for one in (grown, before)
    )
    assert attends == small * 2
    # The controls: a channel of the stream that is written to, of the target and of the head.
    tensors = load_file(tmp_path / "large" / "model.safetensors")
    for name, which in (("model.layers.0.mlp.down_proj.weight", 0), ("mtp.fc.weight", 1)):
        changed = {**tensors, name: tensors[name].copy()}
        changed[name][100] = 0.5
        save_file(changed, tmp_path / "large" / "model.safetensors")
        assert off(source, tmp_path / "large")[which] > 0.02


def test_what_cannot_grow_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hidden_size is 100, expected a multiple"):
        grow_hybrid(source, tmp_path, HybridShape(hidden_size=100))
    with pytest.raises(InputError, match="linear_num_value_heads: expected"):
        grow_hybrid(source, tmp_path, HybridShape(linear_num_value_heads=16))
