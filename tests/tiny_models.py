"""Tiny random decoders, made with numpy alone: a config.json and a dictionary of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import save_file

from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.tensors import FloatArray, MemoryTensors
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for

needs_int8_cache = pytest.mark.skipif(
    tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < (1, 27),
    reason="keys and values in int8 need onnxruntime 1.27",
)

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
}


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A config.json of a tiny Llama, with changes."""
    return {**BASE, **changes}


def random_tensors(spec: DecoderSpec, seed: int = 0) -> dict[str, FloatArray]:
    """Weights with a spread that makes every part of the decoder matter."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in spec.tensors().items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if name.endswith("norm.weight"):
            values = np.float32(1) + values / 4
        elif name.endswith("bias"):
            values /= 4
        elif name == spec.name("embed"):
            values /= 2
        else:
            values *= 1.5 / np.sqrt(shape[1], dtype=np.float32)
        tensors[name] = values.astype(np.float32)
    return tensors


def save_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_tiny_model(
    folder: Path, weights: str = "fp32", seed: int = 0, **changes: Any
) -> tuple[DecoderSpec, dict[str, FloatArray]]:
    """``model.onnx`` of a tiny random decoder in ``folder``; returns what it was made from."""
    config = tiny_config(**changes)
    spec = spec_for(config)
    tensors = random_tensors(spec, seed)
    options = GraphOptions("tiny", (config["eos_token_id"],), weights)
    folder.mkdir(parents=True, exist_ok=True)
    write_model(spec, MemoryTensors(tensors), folder, options)
    return spec, tensors


# As many rows as the tiny byte-level tokenizer has ids, and a few that are no token.
CHECKPOINT_VOCAB = 352


def tiny_checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A whole tiny checkpoint, with a byte-level tokenizer."""
    import tiny_tokenizers

    config = tiny_config(**{"vocab_size": CHECKPOINT_VOCAB, "license": "mit", **changes})
    save_checkpoint(folder, config, random_tensors(spec_for(config), seed))
    return tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder)


def leftovers(out: Path) -> list[str]:
    """What an export left beside its bundle."""
    return (
        [path.name for path in out.parent.iterdir() if path != out] if out.parent.exists() else []
    )
