"""The same tiny decoders as GGUF files in f32, through llama.cpp."""

import numpy as np
import pytest
from test_golden import CASES, Case
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf import architectures, known
from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import model_keys
from edgedec.export.gguf.writing import write
from edgedec.export.reference import Reference
from edgedec.models.registry import architectures as model_types
from edgedec.models.registry import llamacpp_names, spec_for

# It imports llama_cpp, which is an extra.
evaluator = pytest.importorskip("edgedec.export.gguf.evaluator")

TOLERANCE = 5e-4
# llama.cpp looks GELU up in a table of half precision, and approximates the exact one.
COARSE = dict.fromkeys(
    [
        "gemma2",
        "gemma2-uncapped",
        "gemma3",
        "gemma3_text",
        "gemma3_text-capped",
        "gemma4",
        "gemma4_text",
        "gemma4_unified",
    ],
    2e-2,
) | dict.fromkeys(["gpt2", "gpt2-untied", "gpt_neox", "gpt_neox-sequential"], 5e-2)
# What llama.cpp's architecture leaves out.
REFUSED = {
    "ernie4_5-biased": "bias of 'down'",
    "exaone4": "window of 7",
    "gemma2-uncapped": "bias of 'o'",
    "granitemoehybrid-groups": "norm over 2 groups",
    "hunyuan_v1_dense-biased": "bias of 'o'",
    "llama-gelu": "activation gelu",
    "olmo2-biased": "bias of 'o'",
    "phi3-window": "window of",
    "qwen3-biased": "bias of 'o'",
    "qwen3_5_text-wide": "values of 24 channels with keys of 16",
    # Sparse mixtures: not written to GGUF yet.
    "olmoe": "2 key heads for 4",
    "olmoe-all": "such a mixture",
    "qwen3_moe-window": "such a mixture",
}


def llama_logits(case, folder, keys=None):
    """What llama.cpp computes for the case's tokens, ``[n, vocab]``."""
    file, out = folder / "model.gguf", folder / "logits"
    architecture = architecture_for(case.spec)
    metadata = {"tokenizer.ggml.model": "none", **model_keys(case.spec, architecture)}
    write(file, case.spec, case.tensors, architecture, {**metadata, **(keys or {})}, "f32")
    columns = case.spec.vocab_size
    request = {
        "file": str(file),
        "tokens": case.tokens,
        "columns": columns,
        "out": str(out),
        "texts": [],
        "threads": 1,
    }
    evaluator.run(request)
    return np.fromfile(out, np.float32).reshape(len(case.tokens), columns)


class Made:
    """A decoder with random weights, and no recorded logits."""

    def __init__(self, changes):
        self.spec = spec_for(tiny_config(**changes))
        self.tensors = MemoryTensors(random_tensors(self.spec, seed=3))
        self.tokens = np.random.default_rng(5).integers(0, self.spec.vocab_used, 32).tolist()


@pytest.mark.parametrize("name", sorted(set(CASES) - set(REFUSED)))
def test_f32(name, tmp_path):
    case = Case(name)
    assert case.off(llama_logits(case, tmp_path)) < COARSE.get(name, TOLERANCE)


def test_every_family_names_known_architectures():
    """One that llama.cpp does not know would stand here by name."""
    named = {name: llamacpp_names(name) for name in model_types()}
    assert all(named.values())
    assert {one for names in named.values() for one in names} == set(known.KNOWN)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_llama_cpp_leaves_out_is_refused(name):
    with pytest.raises(UnsupportedArchitecture, match=REFUSED[name]):
        architecture_for(Case(name).spec)


def test_keys_that_llama_cpp_would_look_for_in_another_layer_are_refused():
    text = Case("gemma4").config["text_config"]
    near, whole = "sliding_attention", "full_attention"
    spec = spec_for({**text, "layer_types": [near, whole, near, near, whole]})
    with pytest.raises(UnsupportedArchitecture, match="layer 3 that reads the keys of layer 2"):
        architecture_for(spec)


# Where no recorded case has a trait alone: against the numpy reference, which all of them check.
TRAITS = {
    "gemma2-uncapped": {
        "model_type": "gemma2",
        "tie_word_embeddings": True,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma2-scaled": {
        "model_type": "gemma2",
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 100,
        "sliding_window": 8,
    },
    "gemma3-scaled": {"model_type": "gemma3_text", "query_pre_attn_scalar": 100},
    "gemma3-windowless": {"model_type": "gemma3_text", "sliding_window": None},
    "smollm3-every-fourth": {"model_type": "smollm3", "num_hidden_layers": 5},
    "smollm3-all": {"model_type": "smollm3", "no_rope_layers": [1, 1], "mlp_bias": True},
    "stablelm-tied": {"model_type": "stablelm", "tie_word_embeddings": True},
    "olmo2-tied": {"model_type": "olmo2", "tie_word_embeddings": True},
    "neox-tied": {"model_type": "gpt_neox", "hidden_act": "gelu", "tie_word_embeddings": True},
    "olmoe-even": {
        "model_type": "olmoe",
        "num_key_value_heads": 4,
        "intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
    },
    "llama-biased-llama3": {
        "attention_bias": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen2-wide": {"model_type": "qwen2", "head_dim": 32},
    "yarn-warmer": {
        "model_type": "qwen2",
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "attention_factor": 1.3,
        },
    },
}


@pytest.mark.parametrize("name", sorted(TRAITS))
def test_traits(name, tmp_path):
    case = Made(TRAITS[name])
    expected = Reference(case.spec, case.tensors).logits(case.tokens)
    tolerance = 2e-2 if case.spec.activation != "silu" else TOLERANCE
    assert np.abs(llama_logits(case, tmp_path) - expected).max() < tolerance


def test_a_table_of_positions_ends_with_the_context(tmp_path):
    case = Made({"model_type": "gpt2"})
    case.spec = case.spec.within(32)
    expected = Reference(case.spec, case.tensors).logits(case.tokens)
    assert np.abs(llama_logits(case, tmp_path) - expected).max() < 2e-2


def test_a_window_that_nothing_outgrows_is_none(tmp_path):
    case = Case("mistral-window")
    case.spec = case.spec.within(9)
    case.tokens = case.tokens[:9]
    got = llama_logits(case, tmp_path)
    assert np.abs(got[::3, ::5] - case.logits[: len(got[::3])]).max() < TOLERANCE


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("llama", {"llama.rope.freq_base": 9000.0}),
        ("llama-linear", {"llama.rope.scaling.factor": 3.9}),
        ("mistral-window", {"granite_swa.attention.sliding_window": 10}),
        ("gemma2", {"gemma2.attn_logit_softcapping": 40.0}),
        ("granite", {"granite.residual_scale": 1.0}),
        ("gpt_neox", {"gptneox.use_parallel_residual": False}),
        ("lfm2", {"lfm2.rope.freq_base": 10000.0}),
        ("granitemoehybrid-nope", {"granite.rope.scaling.finetuned": True}),
        ("granitemoehybrid-mamba", {"granitehybrid.rope.scaling.finetuned": True}),
        ("granitemoehybrid-mamba", {"granitehybrid.residual_scale": 1.0}),
        ("gemma4", {"gemma4.rope.freq_base_swa": 9000.0}),
        ("gemma4_text", {"gemma4.rope.freq_base": 9000.0}),
        ("gemma4_unified", {"gemma4.attention.sliding_window": 48}),
    ],
)
def test_a_wrong_key_is_seen(name, keys, tmp_path):
    """The control: each of these mistakes is outside the tolerance."""
    case = Case(name)
    assert case.off(llama_logits(case, tmp_path, keys)) > 2 * COARSE.get(name, TOLERANCE)


def test_rows_in_the_wrong_order_are_seen(tmp_path, monkeypatch):
    as_they_are = lambda head_dim, rotary_dim: list(range(head_dim))  # noqa: E731
    monkeypatch.setattr(architectures, "turning", as_they_are)
    case = Case("llama")
    assert case.off(llama_logits(case, tmp_path)) > 100 * TOLERANCE
