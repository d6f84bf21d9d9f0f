"""Quantised graphs against the numpy reference over the weights they stand for."""

import graph_runner
import numpy as np
import onnx
import pytest
from kinds import in_full
from rounded_weights import rounded
from tiny_models import MemoryTensors, needs_quantised_experts, random_tensors, tiny_config

from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

TOKENS = np.random.default_rng(3).integers(0, 90, 24).tolist()
CASES = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "odd-sizes": {"hidden_size": 72, "intermediate_size": 104},
    "padded": {"edgedec_vocab_used": 90, "tie_word_embeddings": True},
    "gemma2": {
        "model_type": "gemma2",
        "edgedec_vocab_used": 90,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 2.5,
    },
    "granite": {"model_type": "granite", "logits_scaling": 2.0, "attention_multiplier": 0.2},
    "olmo2": {"model_type": "olmo2"},
    "phi3": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "stablelm": {"model_type": "stablelm", "use_parallel_residual": True, "qk_layernorm": True},
    # All experts are used, so that no rounding sends a token to another one.
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 96,
        "num_experts": 3,
        "num_experts_per_tok": 3,
    },
    "olmoe": {
        "model_type": "olmoe",
        "intermediate_size": 32,
        "num_experts": 5,
        "num_experts_per_tok": 5,
    },
    "gpt2": {"model_type": "gpt2"},
    "gpt_neox": {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": 4},
}


def exact(folder):
    """Let the products take their activations in float32, as the reference does."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    onnx.save(model, folder / "model.onnx")


def case(name):
    mixture = "num_experts" in CASES[name]
    return pytest.param(name, marks=needs_quantised_experts if mixture else ())


@pytest.fixture(params=map(case, sorted(CASES)))
def made(request, tmp_path):
    def make(bits, block_size=32):
        spec = spec_for(tiny_config(**CASES[request.param]))
        arrays = random_tensors(spec, 5)
        options = GraphOptions("tiny", weights=f"int{bits}", block_size=block_size)
        write_model(spec, MemoryTensors(arrays), tmp_path, options)
        return spec, rounded(spec, arrays, bits, block_size)

    return make


def distance(spec, arrays, folder):
    """Largest distance of the graph's logits from the reference's, in their own spread."""
    expected = Reference(spec, MemoryTensors(arrays)).logits(TOKENS)
    got = graph_runner.logits(folder, spec, [TOKENS])
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    finite = np.isfinite(expected)
    return np.abs(got[finite] - expected[finite]).max() / expected[finite].std()


@pytest.mark.parametrize(("bits", "block_size"), in_full([(4, 32), (8, 32), (4, 16)], 2))
def test_the_layout(made, bits, block_size, tmp_path):
    spec, arrays = made(bits, block_size)
    exact(tmp_path)
    # The kernel of experts in int8 rounds activations, whatever it is asked for.
    rounds = bits == 8 and spec.experts is not None
    assert distance(spec, arrays, tmp_path) < (0.2 if rounds else 1e-3)


@pytest.mark.parametrize("bits", in_full([4, 8]))
def test_int8_activations(made, bits, tmp_path):
    spec, arrays = made(bits)
    assert distance(spec, arrays, tmp_path) < 0.2


def test_a_wrong_nibble_order_is_seen(made, tmp_path):
    spec, arrays = made(4)
    exact(tmp_path)
    name = spec.name("experts_down" if spec.experts else "down", 0)
    arrays[name] = arrays[name].reshape(-1, 2)[:, ::-1].reshape(arrays[name].shape)
    assert distance(spec, arrays, tmp_path) > 0.1
