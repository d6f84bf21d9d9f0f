"""The parity check: its figures are right, and it sees what it is there for."""

import dataclasses

import numpy as np
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.errors import ParityError
from edgedec.export import parity
from edgedec.export.divergence import FLOORS
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.parity import Divergence, ParityFigures, ParityRun
from edgedec.models.registry import spec_for

TOKENS = np.random.default_rng(4).integers(0, 90, 40).tolist()

LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0, 3.0] * 4}
# Every form of residual stream, of positions, and of what comes before the first layer.
OTHERS = [
    {"model_type": "gemma2", "sliding_window": 5},
    {"model_type": "gemma3_text", "sliding_window": 5, "num_hidden_layers": 3},
    {"model_type": "phi3", "partial_rotary_factor": 0.5},
    {"model_type": "smollm3", "no_rope_layer_interval": 2},
    {"model_type": "stablelm", "use_parallel_residual": True, "qk_layernorm": True},
    {"model_type": "olmo2", "num_hidden_layers": 3},
    {"model_type": "granite", "residual_multiplier": 0.4, "logits_scaling": 2.0},
    {"model_type": "gpt2"},
    {"model_type": "gpt_neox", "hidden_act": "gelu", "num_key_value_heads": 4},
    {"model_type": "minicpm", "scale_emb": 3, "scale_depth": 1.4, "dim_model_base": 32},
]


def compare(folder, weights="fp32", on_step=lambda done, total: None, **changes):
    spec = spec_for(tiny_config(**changes))
    tensors = MemoryTensors(random_tensors(spec, 2))
    options = GraphOptions("tiny", weights=weights)
    write_model(spec, tensors, folder, options)
    return ParityRun(spec, tensors, folder, options).compare(TOKENS, on_step)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model_type": "qwen3", "tie_word_embeddings": True},
        {"model_type": "qwen2", "edgedec_vocab_used": 90},
        {"model_type": "mistral", "sliding_window": 5, "num_hidden_layers": 3},
        *OTHERS,
    ],
    ids=str,
)
def test_an_exact_graph(tmp_path, changes):
    found = compare(tmp_path, **changes)
    assert found.kl_nats < 1e-9
    assert found.top1 == 1
    assert found.perplexity == pytest.approx(found.perplexity_source, rel=1e-5)
    found.check("target", "fp32")


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_each_layer_of_every_kind_of_decoder(tmp_path, changes):
    """Whatever its residual stream is made of, the fp32 graph is checked layer by layer."""
    found = compare(tmp_path, "int8", **changes)
    assert 0 < found.fp32_layer_error < 1e-5
    assert 0 < found.kl_nats < 0.01


def test_longrope_is_compared_over_the_context_of_the_export(tmp_path):
    """The layers of the check are small, and still rotate as the exported ones do."""
    changes = {"max_position_embeddings": 4096, "original_max_position_embeddings": 2048}
    spec = spec_for(tiny_config(model_type="phi3", rope_scaling=LONGROPE, **changes))
    tensors = MemoryTensors(random_tensors(spec, 2))
    for limit in (None, 2048):
        options = GraphOptions("tiny", weights="int8", max_context=limit)
        write_model(spec, tensors, tmp_path, options)
        run = ParityRun(spec, tensors, tmp_path, options)
        assert run.compare(TOKENS, lambda done, total: None).kl_nats < 0.01
    short = ParityRun(spec, tensors, tmp_path, GraphOptions("tiny", weights="int8"))
    assert short.compare(TOKENS, lambda done, total: None).kl_nats > 0.1


def test_the_finer_format_is_closer(tmp_path):
    divergence = []
    for weights in ("fp16", "int8", "int4"):
        (tmp_path / weights).mkdir()
        found = compare(tmp_path / weights, weights)
        assert 0 < found.fp32_layer_error < 1e-5
        divergence.append(found.kl_nats)
    assert divergence == sorted(divergence)
    assert divergence[0] < divergence[2] / 100


def test_the_head_in_parts_is_the_head(tmp_path, monkeypatch):
    """Seven parts of the vocabulary, the last one shorter, give the same figures."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = compare(tmp_path / "whole", "int8")
    monkeypatch.setattr(parity, "CHUNK_NUMBERS", 64 * 15)
    steps = []
    parts = compare(tmp_path / "parts", "int8", lambda done, total: steps.append((done, total)))
    assert steps[-1] == (11, 11)
    for one, two in zip(dataclasses.astuple(whole), dataclasses.astuple(parts), strict=True):
        assert one == pytest.approx(two, rel=1e-4, abs=1e-9)


def test_a_mistake_of_the_emitter_is_named(tmp_path, monkeypatch):
    """int8 hides a small mistake in its own noise; the fp32 graph does not."""
    node = GraphWriter.node

    def wrong(self, op, inputs, out, **attributes):
        if out == "layers.1.active":
            attributes["alpha"] = 1.05
        return node(self, op, inputs, out, **attributes)

    monkeypatch.setattr(GraphWriter, "node", wrong)
    with pytest.raises(ParityError, match="layer 1 of the fp32 graph differs"):
        compare(tmp_path, "int8")


def test_damage_after_quantising_is_seen(tmp_path):
    """The check reads the bytes that were written, not those that were meant."""
    spec = spec_for(tiny_config())
    tensors = MemoryTensors(random_tensors(spec, 2))
    options = GraphOptions("tiny", weights="int8")
    write_model(spec, tensors, tmp_path, options)
    data = tmp_path / "model.onnx.data"
    stored = bytearray(data.read_bytes())
    middle = len(stored) // 2 // 4096 * 4096
    stored[middle : middle + 4096] = bytes(255 - byte for byte in stored[middle : middle + 4096])
    data.write_bytes(stored)
    found = ParityRun(spec, tensors, tmp_path, options).compare(TOKENS, lambda done, total: None)
    with pytest.raises(ParityError):
        found.check("target", "int8")


def log_softmax(z):
    z = z.astype(float) - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def test_divergence_is_what_it_says():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50, 9).tolist()
    source = (rng.standard_normal((8, 50)) * 6 + 200).astype(np.float32)
    export = source + rng.standard_normal((8, 50), dtype=np.float32)
    divergence = Divergence(tokens)
    for start, stop in ((0, 7), (7, 8), (8, 31), (31, 50)):
        divergence.add(source[:, start:stop], export[:, start:stop], start)
    found = divergence.result(0.0)
    p, q = log_softmax(source), log_softmax(export)
    assert found.kl_nats == pytest.approx((np.exp(p) * (p - q)).sum(axis=1).mean(), rel=1e-5)
    assert found.top1 == (source.argmax(1) == export.argmax(1)).mean()
    rows = np.arange(8), tokens[1:]
    assert found.perplexity_source == pytest.approx(np.exp(-p[rows].mean()), rel=1e-4)
    assert found.perplexity == pytest.approx(np.exp(-q[rows].mean()), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kl_nats": 0.5}, r"KL 0.5 nats \(at most 0.02\)"),
        ({"kl_nats": float("nan")}, "KL nan"),
        ({"top1": 0.5}, "top-1 agreement 0.500"),
        ({"perplexity": 22.0}, "perplexity times 1.100"),
    ],
)
def test_the_floor_says_by_how_much(changes, words):
    good = ParityFigures(40, 0.001, 0.99, 20.0, 20.1, 1e-6)
    good.check("draft", "int8")
    with pytest.raises(ParityError, match=words):
        dataclasses.replace(good, **changes).check("draft", "int8")


@pytest.mark.parametrize(
    ("weights", "calibrated", "ways"),
    [
        ("int4", False, "--weights auto or --calibrated"),
        ("int4", True, "--weights auto or --weights int8"),
        ("auto", False, "--weights int8 or --calibrated"),
        ("auto", True, "--weights int8"),
        ("q4_k_m", False, "--weights q8_0 or --calibrated"),
        ("q4_k_m", True, "--weights q8_0"),
        ("q6_k", False, "--weights q8_0"),
        ("int8", False, "--weights fp16"),
    ],
)
def test_the_ways_out_are_those_of_the_weights(weights, calibrated, ways):
    """What is calibrated already, or cannot be, is not told to calibrate."""
    far = ParityFigures(40, 9.0, 0.1, 20.0, 90.0, 1e-6)
    with pytest.raises(ParityError) as caught:
        far.check("target", weights, calibrated=calibrated)
    assert f": try {ways}, or another --parity-text" in str(caught.value)


@pytest.mark.parametrize("weights", FLOORS)
def test_figures_at_the_floor_are_good(weights):
    floor = FLOORS[weights]
    ParityFigures(40, floor.kl_nats, floor.top1, 1.0, floor.perplexity_ratio, 1e-6).check(
        "one", weights
    )
