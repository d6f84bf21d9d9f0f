"""Outliers move into the weights: the same decoder, with inputs that rounding keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config
from tiny_outliers import trained_with_outliers, with_outliers

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


@pytest.mark.full
def test_a_trained_model_with_outliers_is_kept(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(DEMO / "draft")
    spec, tokenizer = checkpoint.spec, Tokenizer.load(DEMO / "draft")
    tensors = MemoryTensors(trained_with_outliers(checkpoint))
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
