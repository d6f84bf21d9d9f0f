"""Any small decoder with any traits: the fp32 graph computes what the numpy reference does."""

import dataclasses
import tempfile
from pathlib import Path

import graph_runner
import numpy as np
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import MemoryTensors, random_tensors

from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.reference import Reference
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope
from edgedec.models.traits import Experts, Norm, Scales

TOKENS = 14
# A root after the text, two children, and a grandchild under the second.
TREE = [(0, -1), (1, 0), (2, 0), (1, 2)]


@st.composite
def specs(draw):
    """Sizes and traits in any combination that a config.json could describe."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([8, 16, 24, 32]))
    layers = draw(st.integers(1, 3))
    rotary_dim = draw(st.just(head_dim) | st.integers(1, head_dim // 2).map(lambda n: 2 * n))
    placement = draw(st.sampled_from(["pre", "post", "pre_post"]))
    kind = draw(st.sampled_from(["rms", "layer"]))
    residuals = ["sequential", "parallel", "shared"] if placement == "pre" else ["sequential"]
    ropes = st.none() | st.floats(10, 1e6).map(Rope)
    vocab_size = draw(st.integers(3, 40))
    factors, caps = st.floats(0.25, 4), st.just(0.0) | st.floats(1, 30)
    return DecoderSpec(
        architecture="any",
        hidden=draw(st.integers(4, 40)),
        ffn=draw(st.integers(1, 40)),
        layers=layers,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        vocab_used=draw(st.integers(3, vocab_size)),
        max_context=64,
        norm=Norm(1e-5, kind, placement, bias=kind == "layer" and draw(st.booleans())),
        windows=tuple(draw(st.sampled_from([0, 3, 5])) for _ in range(layers)),
        ropes=tuple(draw(ropes) for _ in range(layers)),
        rotary_dim=rotary_dim,
        position_rows=draw(st.sampled_from([0, 64])),
        residual=draw(st.sampled_from(residuals)),
        activation=draw(st.sampled_from(["silu", "gelu", "gelu_tanh"])),
        gated=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["", "head", "heads", "all"])),
        scales=Scales(
            embed=draw(factors),
            attention=draw(st.none() | st.floats(0.05, 0.5)),
            residual=draw(factors),
            logits=draw(factors),
            attention_cap=draw(caps),
            logit_cap=draw(caps),
        ),
        tied=draw(st.booleans()),
    )


@st.composite
def mixtures(draw):
    """The same with experts."""
    count = draw(st.integers(2, 7))
    experts = Experts(count, draw(st.integers(2, count)), draw(st.booleans()))
    spec = dataclasses.replace(draw(specs()), experts=experts)
    return dataclasses.replace(spec, activation="silu", gated=True, mlp_bias=False)


def distance(spec, computed):
    """Largest distance between reference and graph, of a text and of a tree after it.

    ``computed`` is the decoder that the graph is made for. In the spread of the logits.
    """
    tensors = random_tensors(spec)
    reference = Reference(spec, MemoryTensors(tensors))
    text = [i * 7 % spec.vocab_used for i in range(TOKENS)]
    expected = [*reference.logits(text)[:-1]]
    for node in range(len(TREE)):
        expected.append(reference.logits([*text[:-1], *path_to(node)])[-1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(computed, MemoryTensors(tensors), folder, GraphOptions("any", weights="fp32"))
        got = graph_runner.logits(folder, spec, [text[:5], text[5:-1]])
        got = np.concatenate([got, graph_runner.tree(folder, spec, text[:-1], TREE)])
    expected = np.array(expected)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(finite, np.isfinite(got))
    return np.abs(expected[finite] - got[finite]).max() / max(expected[finite].std(), 1e-2)


def path_to(node):
    return [] if node < 0 else [*path_to(TREE[node][1]), TREE[node][0]]


@settings(max_examples=examples(60))
@given(specs())
def test_any_decoder(spec):
    assert distance(spec, spec) < 1e-3


# The same ones each time: where two experts are as good to the last bit, each may choose another.
@settings(max_examples=examples(30), derandomize=True)
@given(mixtures())
def test_any_mixture(spec):
    assert distance(spec, spec) < 1e-3


@settings(max_examples=examples(15), derandomize=True)
@given(mixtures())
def test_a_forgotten_expert_is_seen(spec):
    """The control: one expert fewer for each token."""
    spec = dataclasses.replace(spec, scales=Scales())
    fewer = dataclasses.replace(spec.experts, used=spec.experts.used - 1)
    assert distance(spec, dataclasses.replace(spec, experts=fewer)) > 1e-3


@settings(max_examples=examples(20))
@given(specs())
def test_a_forgotten_window_is_seen(spec):
    """The control: the same check, with a graph that sees one token too many."""
    narrow = dataclasses.replace(
        spec, windows=(3,) * spec.layers, scales=Scales(), ropes=(Rope(100.0),) * spec.layers
    )
    wide = dataclasses.replace(narrow, windows=(4,) * spec.layers)
    assert distance(narrow, narrow) < 1e-3
    assert distance(narrow, wide) > 1e-3
