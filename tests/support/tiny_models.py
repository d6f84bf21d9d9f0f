"""Tiny random decoders, made with numpy alone: a config.json and a dictionary of tensors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from safetensors.numpy import save_file

from edgedec.export.coreml import ProgramOptions, write_program
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx_static import StaticOptions, write_graphs
from edgedec.export.quantize import MIXED
from edgedec.export.ranges import measured
from edgedec.export.tensors import CanonicalTensors, FloatArray, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for

needs_int8_cache = pytest.mark.skipif(
    tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < (1, 27),
    reason="keys and values in int8 need onnxruntime 1.27",
)

needs_quantised_experts = pytest.mark.skipif(
    tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < (1, 31),
    reason="experts in int4 and int8 need onnxruntime 1.31",
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


GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 96,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 256,
    "n_inner": 128,
    "eos_token_id": 0,
}


class MemoryTensors:
    """Tensors that are in memory already."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        return self._tensors[name][start:stop].astype(np.float32)


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A config.json of a tiny Llama (or GPT-2, if that is the model_type), with changes."""
    base = GPT2 if changes.get("model_type") == "gpt2" else BASE
    return {**base, **changes}


def random_stored(spec: DecoderSpec, seed: int = 0) -> dict[str, FloatArray]:
    """A checkpoint's tensors, with a spread that makes every part of the decoder matter."""
    rng = np.random.default_rng(seed)
    shapes = spec.tensors()
    kinds = {
        name: (canonical, source)
        for canonical, source in spec.origins().items()
        for name in source.stored(shapes[canonical])
    }
    tensors = {}
    for name, shape in dict(spec.stored()).items():
        canonical, source = kinds[name]
        values = rng.standard_normal(shape, dtype=np.float32)
        if canonical.endswith(("norm.weight", "layer_scalar")):
            values = np.float32(1 - source.plus) + values / 4
        elif canonical.endswith("bias"):
            values /= 4
        elif ".embed_" in canonical:
            values /= 2
        elif len(shape) > 1:
            values *= 1.5 / np.sqrt(shape[0 if source.transposed else 1], dtype=np.float32)
        tensors[name] = values.astype(np.float32)
    return tensors


def random_tensors(spec: DecoderSpec, seed: int = 0) -> dict[str, FloatArray]:
    """The canonical tensors of ``random_stored``."""
    return canonical_tensors(spec, random_stored(spec, seed))


def canonical_tensors(spec: DecoderSpec, stored: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """What emitters read of a checkpoint's tensors, in memory."""
    reader = CanonicalTensors(MemoryTensors(stored), spec.tensors(), spec.origins())
    return {name: read(reader, name) for name in spec.tensors()}


def save_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_tiny_model(
    folder: Path,
    weights: str = "fp32",
    seed: int = 0,
    *,
    own_rows: bool = False,
    padding_asked: bool = True,
    taps: tuple[int, ...] = (),
    drafted: tuple[int, ...] = (),
    noise: float = 0.0,
    **changes: Any,
) -> tuple[DecoderSpec, dict[str, FloatArray]]:
    """``model.onnx`` of a tiny random decoder in ``folder``; returns what it was made from.

    Its weights stray by ``noise`` from those of the seed, for a draft of the model without.
    Of ``int4+int8`` the values and the last product of each layer, and the head, are in int8.
    """
    config = tiny_config(**changes)
    spec = spec_for(config)
    rng = np.random.default_rng(1)
    tensors = {
        name: values + noise * rng.standard_normal(values.shape, dtype=np.float32)
        for name, values in random_tensors(spec, seed).items()
    }
    options = GraphOptions("tiny", (config["eos_token_id"],), weights, own_rows=own_rows, taps=taps,
                           padding_asked=padding_asked, drafted=drafted)  # fmt: skip
    if weights == MIXED:
        raised = {spec.name(role, layer) for role in ("v", "down") for layer in range(spec.layers)}
        options = dataclasses.replace(
            options, weights="int4", raised=frozenset(raised), head_bits=8
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_model(spec, MemoryTensors(tensors), folder, options)
    return spec, tensors


def write_tiny_graphs(
    folder: Path, weights: str = "fp32", **changes: Any
) -> tuple[DecoderSpec, dict[str, FloatArray]]:
    """Graphs of static shape of a tiny random decoder; returns what they were made from.

    ``changes`` may name ``rows``, ``seed`` and ``activations``; others are of the decoder.
    """
    rows, seed = changes.pop("rows", (1, 4, 8, 16)), changes.pop("seed", 0)
    activations = changes.pop("activations", None)
    config = tiny_config(**changes)
    spec = spec_for(config)
    tensors = random_tensors(spec, seed)
    options = StaticOptions("tiny", (config["eos_token_id"],), weights, rows=rows,
                            activations=activations)  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    ranges = None
    if activations is not None:
        texts = np.random.default_rng(1).integers(0, 90, (12, 60)).tolist()
        ranges = measured(spec, MemoryTensors(tensors), texts, int(activations[3:]))
    write_graphs(spec, MemoryTensors(tensors), folder, options, None, ranges)
    return spec, tensors


def write_tiny_program(
    folder: Path, form: str = "slice", weights: str = "fp16", **changes: Any
) -> tuple[DecoderSpec, dict[str, FloatArray]]:
    """``model.mlpackage`` of a tiny random decoder in ``folder``; returns what it was made from.

    Its weights are numbers of fp16, so that storing them changes nothing.
    """
    rows = changes.pop("rows", (1, 4, 8, 16))
    config = tiny_config(**changes)
    spec = spec_for(config)
    tensors = {
        name: values.astype(np.float16).astype(np.float32)
        for name, values in random_tensors(spec).items()
    }
    options = ProgramOptions("tiny", (config["eos_token_id"],), weights, form, rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_program(spec, MemoryTensors(tensors), folder, options)
    return spec, tensors


# As many rows as the tiny byte-level tokenizer has ids, and a few that are no token.
CHECKPOINT_VOCAB = 352


def tiny_checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A whole tiny checkpoint, with a byte-level tokenizer."""
    import tiny_tokenizers

    config = tiny_config(**{"vocab_size": CHECKPOINT_VOCAB, "license": "mit", **changes})
    save_checkpoint(folder, config, random_stored(spec_for(config), seed))
    return tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder)


def leftovers(out: Path) -> list[str]:
    """What an export left beside its bundle."""
    return (
        [path.name for path in out.parent.iterdir() if path != out] if out.parent.exists() else []
    )
