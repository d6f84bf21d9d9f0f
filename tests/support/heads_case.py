"""Tiny heads, for the authors' own code and for the test that repeats what it computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tiny_models import tiny_config

from edgedec.models.heads import head_for
from edgedec.models.registry import spec_for

FOLDER = Path(__file__).parents[1] / "golden" / "heads"
LENGTH, STEPS, SEED = 12, 3, 5
DRAFTED = np.sort(np.random.default_rng(1).choice(96, 40, replace=False))
TARGET = tiny_config(vocab_size=96, hidden_size=64, num_hidden_layers=8)
LAYER = {
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 96,
    "attention_bias": False,
}
# What differs, by case: the kind of the layer, and the flags of the configuration.
CASES: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "eagle3": ("llama", {}),
    "eagle3-normed-residual": ("llama", {"norm_before_residual": True}),
    "eagle3-qwen3": ("qwen3", {"norm_before_residual": True}),
    "eagle3.1": ("llama", {"fc_norm": True, "norm_output": True}),
    "eagle3-norm-before-fc": ("llama", {"norm_before_fc": True}),
}


def config(case: str) -> dict[str, Any]:
    """The configuration as speculators writes it."""
    kind, flags = CASES[case]
    return {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": {**LAYER, "model_type": kind},
        "draft_vocab_size": len(DRAFTED),
        "eagle_aux_hidden_state_layer_ids": [2, 4, 6],
        **flags,
    }


def tensors(case: str) -> dict[str, np.ndarray]:
    """Random weights under the names that speculators stores."""
    spec = head_for(config(case), spec_for(TARGET))
    rng = np.random.default_rng(SEED)
    found = {}
    for name, shape in spec.tensors().items():
        values = rng.standard_normal(shape, dtype=np.float32)
        values = 1 + values / 4 if len(shape) == 1 else values / np.sqrt(shape[1])
        found[spec.stored[name][-1].name] = values.astype(np.float32)
    found["d2t"] = (DRAFTED - np.arange(len(DRAFTED))).astype(np.int64)
    return found


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Tokens [LENGTH], each the one after its state, and states [LENGTH, 3 * 64]."""
    rng = np.random.default_rng(SEED + 1)
    tokens = rng.integers(0, 96, LENGTH)
    return tokens, rng.standard_normal((LENGTH, 3 * 64)).astype(np.float32)


def checkpoint(case: str, folder: Path) -> Path:
    """Write the head's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(case)), "utf-8")
    save_file(tensors(case), folder / "model.safetensors")
    return folder
