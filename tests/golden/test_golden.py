"""Tiny random decoders against logits that transformers computed (see record.py)."""

import dataclasses
import json
from pathlib import Path

import graph_runner
import numpy as np
import pytest
from tiny_models import MemoryTensors, canonical_tensors, needs_int8_cache, random_stored

from edgedec.export.calibration import kv_scales
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.reference import Reference
from edgedec.models.registry import architectures, spec_for

NORM_OF_HEAD_0 = "model.layers.{layer}.self_attn.q_layernorm.norms.0.weight"
HERE = Path(__file__).parent
CASES = sorted(file.stem for file in HERE.glob("*.json"))
TOLERANCE = 1e-4


class Case:
    def __init__(self, name):
        case = json.loads((HERE / f"{name}.json").read_text("utf-8"))
        self.config = case["config"]
        # Longrope: a text within the original context is one of a decoder that ends there.
        self.within = case.get("within")
        self.spec = spec_for(self.config).within(self.within)
        self.stored = random_stored(self.spec, seed=case["seed"])
        self.arrays = canonical_tensors(self.spec, self.stored)
        self.tensors = MemoryTensors(self.arrays)
        golden = np.load(HERE / f"{name}.npz")
        self.tokens, self.logits = golden["tokens"].tolist(), golden["logits"]

    def off(self, logits):
        """Largest distance from the recorded logits."""
        return float(np.abs(logits[::3, ::5] - self.logits).max())


@pytest.fixture(params=CASES)
def case(request):
    return Case(request.param)


def graph_logits(case, folder, parts=None, **options):
    write_model(case.spec, case.tensors, folder, GraphOptions("tiny", **options))
    return graph_runner.logits(folder, case.spec, parts or [case.tokens])


def test_reference(case):
    assert case.off(Reference(case.spec, case.tensors).logits(case.tokens)) < TOLERANCE


@pytest.mark.full
def test_fp32_graph(case, tmp_path):
    assert case.off(graph_logits(case, tmp_path, weights="fp32")) < TOLERANCE


def test_fp32_graph_in_parts(case, tmp_path):
    tokens = case.tokens
    parts = [tokens[:20], tokens[20:21], tokens[21:24], tokens[24:]]
    assert case.off(graph_logits(case, tmp_path, parts, weights="fp32")) < TOLERANCE


# A root, two children, and grandchildren under both; slots run ahead of positions.
TREE = [(5, -1), (17, 0), (30, 0), (44, 1), (61, 2), (2, 2), (80, 4)]


def path_to(node):
    return [] if node < 0 else [*path_to(TREE[node][1]), TREE[node][0]]


@pytest.mark.full
def test_a_tree_in_the_fp32_graph(case, tmp_path):
    """Every node sees its own path only, through windows too."""
    if case.spec.mixers:
        pytest.skip("a state has one past")
    write_model(case.spec, case.tensors, tmp_path, GraphOptions("tiny", weights="fp32"))
    tokens = case.tokens[:20]
    got = graph_runner.tree(tmp_path, case.spec, tokens, TREE)
    reference = Reference(case.spec, case.tensors)
    for node in range(len(TREE)):
        expected = reference.logits(tokens + path_to(node))[-1]
        np.testing.assert_allclose(got[node], expected, rtol=0, atol=TOLERANCE)


@needs_int8_cache
@pytest.mark.full
def test_keys_and_values_in_int8(case, tmp_path):
    """Close to the recorded logits, in parts as in one, and through a tree."""
    scales = kv_scales(case.spec, case.tensors, case.tokens)
    spread = case.logits.std()
    whole = graph_logits(case, tmp_path, weights="fp32", kv="int8", kv_scales=scales)
    assert 0 < case.off(whole) < 0.4 * spread
    parts = [case.tokens[:20], case.tokens[20:23], case.tokens[23:]]
    np.testing.assert_allclose(
        graph_runner.logits(tmp_path, case.spec, parts), whole, rtol=0, atol=0.02 * spread
    )
    if case.spec.mixers:
        return  # a state has one past
    got = graph_runner.tree(tmp_path, case.spec, case.tokens[:20], TREE)
    for node in range(len(TREE)):
        chain = graph_runner.logits(tmp_path, case.spec, [case.tokens[:20], path_to(node)])
        np.testing.assert_allclose(got[node], chain[-1], rtol=0, atol=0.02 * spread)


def test_every_architecture_has_a_case_and_every_case_its_logits():
    assert {Case(name).config["model_type"] for name in CASES} == set(architectures())
    assert sorted(file.stem for file in HERE.glob("*.npz")) == CASES


@pytest.mark.parametrize(
    ("name", "breakage"),
    [
        ("llama-llama3", {"rope_scaling": None}),
        ("llama-yarn", {"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1.0}}),
        ("llama-linear", {"rope_scaling": {"type": "linear", "factor": 3.9}}),
        ("mistral-window", {"sliding_window": 10}),
        ("qwen2-window", {"max_window_layers": 0}),
        ("qwen3", {"rms_norm_eps": 1e-2}),
        ("llama", {"rope_theta": 9000.0}),
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gemma2", {"attn_logit_softcapping": 3.2}),
        ("gemma2", {"final_logit_softcapping": None}),
        ("gemma2", {"query_pre_attn_scalar": 16}),
        ("gemma2", {"sliding_window": 8}),
        ("gemma2", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("gemma3_text", {"rope_local_base_freq": 10000.0}),
        ("gemma3_text", {"rope_scaling": None}),
        ("gemma3_text", {"sliding_window_pattern": 2}),
        ("gemma3_text", {"sliding_window": 6}),
        ("gemma3_text-capped", {"final_logit_softcapping": None}),
        ("gemma4_text", {"final_logit_softcapping": None}),
        ("gemma4_text", {"rope_parameters": None}),
        ("gemma4_text", {"sliding_window": 8}),
        ("phi3-window", {"sliding_window": 8}),
        ("phi3-longrope", {"original_max_position_embeddings": 64}),
        ("smollm3", {"no_rope_layer_interval": 3}),
        ("smollm3-window", {"sliding_window": 10}),
        ("smollm3-window", {"no_rope_layers": [1, 1, 1]}),
        ("stablelm", {"partial_rotary_factor": 0.25}),
        ("stablelm", {"layer_norm_eps": 1e-2}),
        ("granite", {"embedding_multiplier": 6.5}),
        ("granite", {"attention_multiplier": 0.25}),
        ("granite", {"residual_multiplier": 0.31}),
        ("granite", {"logits_scaling": 1.62}),
        ("gpt2-untied", {"scale_attn_weights": True}),
        ("gpt_neox", {"rotary_pct": 0.5}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("gpt_neox-sequential", {"use_parallel_residual": True}),
        ("gpt_neox-sequential", {"rotary_emb_base": 10000}),
        ("minicpm", {"scale_emb": 1}),
        ("minicpm", {"scale_depth": 1.0}),
        ("minicpm", {"dim_model_base": 64}),
        ("qwen3_moe", {"num_experts_per_tok": 3}),
        ("qwen3_moe", {"norm_topk_prob": False}),
        ("qwen3_moe-window", {"norm_topk_prob": True}),
        ("qwen3_moe-window", {"sliding_window": 10}),
        ("lfm2", {"full_attn_idxs": [2], "layer_types": None, "rope_theta": 10000.0}),
        ("lfm2-named", {"theta": 11000.0}),
        ("lfm2", {"norm_eps": 1e-2}),
        ("granitemoehybrid-mamba", {"rms_norm_eps": 1e-2}),
        ("granitemoehybrid-mamba", {"position_embedding_type": "rope"}),
        ("granitemoehybrid-groups", {"position_embedding_type": "nope"}),
        ("granitemoehybrid-experts", {"num_experts_per_tok": 3}),
        ("qwen3_5_moe_text", {"num_experts_per_tok": 3}),
        ("lfm2_moe", {"num_experts_per_tok": 3}),
        ("olmoe", {"num_experts_per_tok": 2}),
        ("olmoe", {"norm_topk_prob": True}),
    ],
)
def test_a_wrong_detail_is_seen(name, breakage):
    """The control: each of these mistakes is far outside the tolerance."""
    case = Case(name)
    wrong = spec_for({**case.config, **breakage})
    assert case.off(Reference(wrong, case.tensors).logits(case.tokens)) > 20 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("llama-gelu", {"hidden_act": "gelu_new"}),
        ("gpt2", {"activation_function": "gelu"}),
        ("gpt_neox", {"hidden_act": "gelu_fast"}),
    ],
)
def test_gelu_and_its_approximation_are_told_apart(name, other):
    """They differ by 5e-4 at most."""
    case = Case(name)
    wrong = spec_for({**case.config, **other})
    assert case.off(Reference(wrong, case.tensors).logits(case.tokens)) > 3 * TOLERANCE


def test_a_missing_bias_is_seen():
    case = Case("qwen2")
    case.arrays[case.spec.name("k_bias", 1)][:] = 0
    assert case.off(Reference(case.spec, case.tensors).logits(case.tokens)) > 20 * TOLERANCE


# Layers that read the keys of the first layer of their kind, not of the last.
LENT_BY_FIRST = tuple(
    dataclasses.replace(own, shares=own.shares and (0 if own.head_dim == 16 else own.shares))
    for own in Case("gemma4_text").spec.sizes
)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gemma3_text", {"qk_norm": ""}),
        ("gemma2", {"norm": {"placement": "pre"}}),
        ("gemma2", {"norm": {"placement": "post"}}),
        ("gemma2", {"scales": {"embed": 1.0}}),
        ("gemma4_text", {"norm": {"values": False}}),
        ("gemma4_text", {"scales": {"attention": None}}),
        ("gemma4_text", {"factors": False}),
        ("gemma4_text", {"per_layer_inputs": 0}),
        ("gemma4_text", {"sizes": LENT_BY_FIRST}),
        ("phi3-longrope", {"max_context": 32}),
        ("olmo2", {"qk_norm": "heads"}),
        ("olmo2", {"qk_norm": ""}),
        ("stablelm", {"norm": {"kind": "rms"}}),
        ("stablelm-norms", {"qk_norm": "all"}),
        ("stablelm-parallel", {"norm": {"bias": False}}),
        ("stablelm-parallel", {"qkv_bias": False}),
        ("gpt2", {"position_rows": 0}),
        ("gpt2", {"mlp_bias": False}),
        ("gpt_neox", {"residual": "shared"}),
        ("olmoe", {"qk_norm": ""}),
        ("lfm2_moe", {"experts": {"sigmoid": False}}),
    ],
)
def test_a_dropped_trait_is_seen(name, wrong):
    """The same tensors, computed as by another kind of decoder."""
    case = Case(name)
    changes = {
        field: dataclasses.replace(getattr(case.spec, field), **value)
        if isinstance(value, dict)
        else value
        for field, value in wrong.items()
    }
    wrong = dataclasses.replace(case.spec, **changes)
    assert case.off(Reference(wrong, case.tensors).logits(case.tokens)) > 20 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "roles", "wrong"),
    [
        ("gemma2", ["attention_norm"], {"plus": 0.0}),
        ("gemma2", ["final_norm"], {"plus": 0.0}),
        ("gpt_neox", ["q", "k", "v"], {"group": 0}),
        ("gpt2", ["o"], {"transposed": False}),
        ("phi3", ["gate"], {"start": 128}),
        ("stablelm-norms", ["q_norm"], {"name": NORM_OF_HEAD_0}),
        ("granitemoehybrid-mamba", ["decay"], {"log": False}),
        ("granitemoehybrid-mamba", ["skip"], {"name": "model.layers.{layer}.mamba.dt_bias"}),
        ("granitemoehybrid-mamba", ["mix_in"], {"start": 4}),
        ("granitemoehybrid-experts", ["experts_up"], {"start": 0}),
        ("granitemoehybrid-experts", ["shared_up"], {"start": 0}),
        ("qwen3_5_moe_text", ["shared_router"], {"plus": 1.0}),
        ("lfm2_moe", ["probs_bias"], {"log": True}),
        ("granitemoehybrid-groups", ["mix_step"], {"start": 128}),
    ],
)
def test_a_tensor_read_otherwise_is_seen(name, roles, wrong):
    case = Case(name)
    sources = dict(case.spec.sources)
    for role in roles:
        sources[role] = dataclasses.replace(sources[role], **wrong)
    spec = dataclasses.replace(case.spec, sources=sources)
    tensors = MemoryTensors(canonical_tensors(spec, case.stored))
    assert case.off(Reference(case.spec, tensors).logits(case.tokens)) > 20 * TOLERANCE
