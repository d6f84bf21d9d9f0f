"""Outliers move into the weights: the same decoder, with inputs that rounding keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.errors import CheckpointError
from edgedec.export import balancing
from edgedec.export.balancing import balanced
from edgedec.export.calibrated import CalibratedRounding
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.parity import ParityRun
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for
from edgedec.text.tokenizer import Tokenizer

DEMO = Path(__file__).parents[3] / "models" / "demo"
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "biased": {"model_type": "qwen2"},
    "normed heads": {"model_type": "qwen3", "head_dim": 32},
    "norms plus one": {"model_type": "gemma2"},
    "norms after": {"model_type": "olmo2"},
    "parallel": {"model_type": "stablelm", "use_parallel_residual": True},
    "layer norms": {"model_type": "gpt2"},
    "two norms": {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": 4},
    "experts": {
        "model_type": "qwen3_moe", "moe_intermediate_size": 96, "num_experts": 3,
        "num_experts_per_tok": 2,
    },
}  # fmt: skip
RNG = np.random.default_rng(3)
TEXTS = [RNG.integers(0, 90, 60).tolist() for _ in range(3)]


def with_outliers(arrays: dict[str, FloatArray], spec: DecoderSpec) -> dict[str, FloatArray]:
    """The same decoder with channels that are hundreds of times the others."""
    arrays = {name: array.copy() for name, array in arrays.items()}

    def move(makers: list[str], readers: list[str], made: list[int], read: list[int]) -> None:
        for name in makers:
            if name in arrays:
                arrays[name][made] *= 300
        for name in readers:
            arrays[name][:, read] /= 300

    for layer in range(spec.layers):
        names = {role: spec.name(role, layer) for role in ROLES}
        fed = [names["gate"], names["up"]] if spec.gated else [names["up"]]
        dense = spec.experts is None
        if "attention_norm" in spec.layer_norms:
            qkv = [names[role] for role in "qkv"] + (fed if spec.residual == "shared" else [])
            move([names["attention_norm"], names["attention_norm_bias"]], qkv, [3, 9], [3, 9])
        if dense and "mlp_norm" in spec.layer_norms:
            move([names["mlp_norm"], names["mlp_norm_bias"]], fed, [5], [5])
        if dense and spec.gated:
            move([names["up"], names["up_bias"]], [names["down"]], [7, 8], [7, 8])
        copies, width = spec.heads // spec.kv_heads, spec.head_dim
        heads = [head * width + 2 for head in range(copies)]  # those that read value head 0
        move([names["v"], names["v_bias"]], [names["o"]], [2], heads)
    return arrays


ROLES = (
    "q", "k", "v", "o", "gate", "up", "down", "v_bias", "up_bias", "attention_norm", "mlp_norm",
    "attention_norm_bias", "mlp_norm_bias",
)  # fmt: skip


def logits(spec: DecoderSpec, tensors: TensorReader) -> FloatArray:
    return Reference(spec, tensors).logits(TEXTS[0])


def largest_ratio(spec: DecoderSpec, tensors: TensorReader) -> float:
    """The largest channel of any calibrated matrix's inputs, over the median one."""
    found = [0.0]

    def hear(asked: Any) -> None:
        if "experts" not in asked.name:
            sizes = np.sqrt(np.square(asked.x).mean(axis=0))
            found.append(float(sizes.max() / np.median(sizes)))

    reference = Reference(spec, tensors)
    x = reference.embed(TEXTS[0])
    for layer in range(spec.layers):
        x = reference.layer(layer, x, hear)
    return max(found)


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_decoder_without_outliers(name: str) -> None:
    spec = spec_for(tiny_config(**CASES[name]))
    arrays = random_tensors(spec, 5)
    wild = with_outliers(arrays, spec)
    expected = logits(spec, MemoryTensors(arrays))
    np.testing.assert_allclose(logits(spec, MemoryTensors(wild)), expected, atol=2e-3)
    tensors, moved = balanced(spec, MemoryTensors(wild), TEXTS, 4, 32)
    assert moved == spec.layers * len(list(balancing._joints(spec, 0)))
    np.testing.assert_allclose(logits(spec, tensors), expected, atol=2e-3)
    if spec.experts is None:  # where nothing can be moved out of what experts read
        assert largest_ratio(spec, tensors) < 0.2 * largest_ratio(spec, MemoryTensors(wild))


@pytest.mark.parametrize("name", CASES)
def test_without_outliers_nothing_is_touched(name: str) -> None:
    spec = spec_for(tiny_config(**CASES[name]))
    arrays = random_tensors(spec, 5)
    tensors, moved = balanced(spec, MemoryTensors(arrays), TEXTS, 4, 32)
    assert moved == 0
    for key, array in arrays.items():
        np.testing.assert_array_equal(read(tensors, key), array)


def test_a_joint_that_forgets_a_consumer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = balancing._joints

    def twin(spec: DecoderSpec, layer: int) -> Any:
        for joint in honest(spec, layer):
            yield dataclasses.replace(joint, consumers=joint.consumers[:1])

    monkeypatch.setattr(balancing, "_joints", twin)
    with pytest.raises(AssertionError):
        test_it_is_the_same_decoder_without_outliers("llama")


def test_a_trained_model_with_outliers_is_kept(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(DEMO / "draft")
    spec, tokenizer = checkpoint.spec, Tokenizer.load(DEMO / "draft")
    names = {spec.name(role, layer) for role in ROLES for layer in range(spec.layers)}
    names |= {spec.name(role) for role in ("embed", "head", "final_norm")}
    arrays = {name: read(checkpoint.tensors, name) for name in names if _is_there(checkpoint, name)}
    tensors = MemoryTensors(with_outliers(arrays, spec))
    tokens = tokenizer.encode(Path(balancing.__file__).read_text())
    texts, unseen = [tokens[i : i + 256] for i in range(0, 1024, 256)], tokens[1024:1280]
    lost = {}
    for name in ("plain", "calibrated", "balanced"):
        options = GraphOptions(name, weights="int4", block_size=128, head_bits=8)
        source: TensorReader = tensors
        if name == "balanced":
            source = balanced(spec, tensors, texts, 4, 128)[0]
        rounding = CalibratedRounding(spec, source, texts, 4, 128) if name != "plain" else None
        (tmp_path / name).mkdir()
        write_model(spec, source, tmp_path / name, options, rounding)
        run = ParityRun(spec, tensors, tmp_path / name, options)
        lost[name] = run.compare(unseen, lambda done, total: None).kl_nats
    assert lost["balanced"] < 0.1 * min(lost["plain"], lost["calibrated"])
    assert lost["balanced"] < 0.1


def _is_there(checkpoint: Checkpoint, name: str) -> bool:
    try:
        return bool(checkpoint.tensors.shape(name))
    except CheckpointError:
        return False
