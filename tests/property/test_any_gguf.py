"""Decoders of any sizes and traits: the GGUF computes what the reference does."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import model_keys
from edgedec.export.gguf.writing import write
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

# It imports llama_cpp, which is an extra.
evaluator = pytest.importorskip("edgedec.export.gguf.evaluator")


@st.composite
def configs(draw):
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    head_dim = 2 * draw(st.integers(2, 12))
    kind = draw(st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "granite"]))
    changes = {
        "model_type": kind,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "hidden_size": draw(st.sampled_from([heads * head_dim, 40, 64])),
        "intermediate_size": draw(st.integers(8, 80)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "vocab_size": draw(st.integers(30, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "attention_bias": kind in ("llama", "granite") and draw(st.booleans()),
        "mlp_bias": kind == "llama" and draw(st.booleans()),
    }
    if kind == "mistral":
        changes["sliding_window"] = draw(st.sampled_from([None, 4, 11]))
    if kind == "granite":
        factors = ("embedding_multiplier", "residual_multiplier", "logits_scaling")
        changes |= {name: draw(st.floats(0.5, 2.0)) for name in factors}
        changes["attention_multiplier"] = draw(st.floats(0.1, 0.5))
    return tiny_config(**changes)


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(configs(), st.integers(0, 9))
def test_any_decoder(config, seed):
    spec = spec_for(config)
    tensors = MemoryTensors(random_tensors(spec, seed))
    tokens = np.random.default_rng(seed).integers(0, spec.vocab_size, 20).tolist()
    architecture = architecture_for(spec)
    keys = {"tokenizer.ggml.model": "none", **model_keys(spec, architecture)}
    with tempfile.TemporaryDirectory() as name:
        file, out = Path(name) / "model.gguf", Path(name) / "logits"
        write(file, spec, tensors, architecture, keys, "f32")
        request = {"file": str(file), "out": str(out), "tokens": tokens, "texts": []}
        columns = {"columns": spec.vocab_size, "threads": 1}
        evaluator.run({**request, **columns})
        got = np.fromfile(out, np.float32).reshape(len(tokens), -1)
    expected = Reference(spec, tensors).logits(tokens)
    assert np.abs(got - expected).max() < 5e-4 * max(1.0, np.abs(expected).max())
