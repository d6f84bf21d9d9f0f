"""Tiny random decoders against logits that transformers computed (see record.py)."""

import json
from pathlib import Path

import graph_runner
import numpy as np
import pytest
from tiny_models import needs_int8_cache, random_tensors

from edgedec.export.calibration import kv_scales
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.reference import Reference
from edgedec.export.tensors import MemoryTensors
from edgedec.models.registry import architectures, spec_for

HERE = Path(__file__).parent
CASES = sorted(file.stem for file in HERE.glob("*.npz"))
TOLERANCE = 1e-4


class Case:
    def __init__(self, name):
        self.config = json.loads((HERE / f"{name}.json").read_text("utf-8"))
        self.spec = spec_for(self.config)
        self.arrays = random_tensors(self.spec, seed=len(name))
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


def test_a_tree_in_the_fp32_graph(case, tmp_path):
    """Every node sees its own path only, through windows too."""
    write_model(case.spec, case.tensors, tmp_path, GraphOptions("tiny", weights="fp32"))
    tokens = case.tokens[:20]
    got = graph_runner.tree(tmp_path, case.spec, tokens, TREE)
    reference = Reference(case.spec, case.tensors)
    for node in range(len(TREE)):
        expected = reference.logits(tokens + path_to(node))[-1]
        np.testing.assert_allclose(got[node], expected, rtol=0, atol=TOLERANCE)


@needs_int8_cache
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
    got = graph_runner.tree(tmp_path, case.spec, case.tokens[:20], TREE)
    reference = Reference(case.spec, case.tensors)
    for node in range(len(TREE)):
        expected = reference.logits(case.tokens[:20] + path_to(node))[-1]
        assert np.abs(got[node] - expected).max() < 0.4 * spread


def test_every_architecture_has_a_golden():
    recorded = {json.loads((HERE / f"{name}.json").read_text())["model_type"] for name in CASES}
    assert recorded == set(architectures())


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
    ],
)
def test_a_wrong_detail_is_seen(name, breakage):
    """The control: each of these mistakes is far outside the tolerance."""
    case = Case(name)
    wrong = spec_for({**case.config, **breakage})
    assert case.off(Reference(wrong, case.tensors).logits(case.tokens)) > 20 * TOLERANCE


def test_a_missing_bias_is_seen():
    case = Case("qwen2")
    case.arrays[case.spec.name("k_bias", 1)][:] = 0
    assert case.off(Reference(case.spec, case.tensors).logits(case.tokens)) > 20 * TOLERANCE
