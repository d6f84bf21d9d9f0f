"""The file itself: metadata, how weights are stored, ties in the best tokens."""

import itertools
import json

import graph_runner
import numpy as np
import onnx
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.errors import InputError
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.models.registry import spec_for


def write(folder, weights="fp32", tensors=None, options=None, **changes):
    spec = spec_for(tiny_config(**changes))
    tensors = tensors or random_tensors(spec)
    write_model(spec, MemoryTensors(tensors), folder, options or GraphOptions("t", (0,), weights))
    return spec


def stored(folder):
    """Where each external tensor stands: ``{name: (offset, length)}``."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    found = {}
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            assert place["location"] == "model.onnx.data"
            found[tensor.name] = int(place["offset"]), int(place["length"])
    return found


def test_metadata(tmp_path):
    options = GraphOptions("named", (3, 5), "int8", block_size=64, max_context=100)
    write(tmp_path, options=options, model_type="mistral", sliding_window=9)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    (entry,) = model.metadata_props
    assert entry.key == "edgedec"
    assert json.loads(entry.value) == {
        "graph_version": 1,
        "name": "named",
        "layers": 2,
        "kv_heads": 2,
        "head_dim": 16,
        "vocab_size": 96,
        "vocab_used": 96,
        "max_context": 100,
        "windows": [9, 9],
        "eos_ids": [3, 5],
        "kv": "fp32",
        "weights": "int8",
        "block_size": 64,
        "top_k": 8,
    }


@pytest.mark.parametrize("weights", ["fp32", "fp16", "int8", "int4"])
def test_weights_start_at_pages_and_do_not_overlap(tmp_path, weights):
    write(tmp_path, weights)
    spans = sorted(set(stored(tmp_path).values()))
    assert len(spans) > 10
    assert all(offset % 4096 == 0 for offset, _ in spans)
    assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(spans))
    assert spans[-1][0] + spans[-1][1] == (tmp_path / "model.onnx.data").stat().st_size


@pytest.mark.parametrize("weights", ["fp32", "fp16", "int8", "int4"])
def test_a_tied_embedding_is_stored_once(tmp_path, weights):
    sizes = []
    for tied in (False, True):
        folder = tmp_path / str(tied)
        folder.mkdir()
        write(folder, weights, tie_word_embeddings=tied, vocab_size=4096)
        sizes.append((folder / "model.onnx.data").stat().st_size)
    table = 4096 * 64 * {"fp32": 4, "fp16": 2, "int8": 1, "int4": 0.5}[weights]
    assert sizes[0] - sizes[1] >= table


def test_every_stored_tensor_is_used(tmp_path):
    write(tmp_path, "int4")
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used


@pytest.mark.parametrize("vocab_size", [5, 96, 40_000])
def test_equal_logits_are_ordered_by_id(tmp_path, vocab_size):
    """The argmax of a tie is its lowest id, in a small vocabulary and in a large one."""
    spec = spec_for(tiny_config(vocab_size=vocab_size))
    tensors = random_tensors(spec)
    head = np.zeros((vocab_size, 64), np.float32)
    rng = np.random.default_rng(0)
    # Two directions, each shared by many tokens: every row of logits is full of ties.
    kind = rng.integers(0, 3, vocab_size)
    head[kind == 1] = rng.standard_normal(64)
    head[kind == 2] = rng.standard_normal(64)
    tensors[spec.name("head")] = head
    write(tmp_path, tensors=tensors, vocab_size=vocab_size)
    (outputs,) = graph_runner.run(tmp_path, spec, [[1, 2, 3, 4, 0]])
    k = min(8, vocab_size)
    expected = np.argsort(-outputs["logits"], axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(outputs["top_ids"], expected)
    picked = np.take_along_axis(outputs["logits"], expected, axis=1)
    np.testing.assert_array_equal(outputs["top_logits"], picked)


def test_padding_never_wins(tmp_path):
    spec = write(tmp_path, edgedec_vocab_used=6)
    (outputs,) = graph_runner.run(tmp_path, spec, [[1, 2, 3]])
    assert np.isneginf(outputs["logits"][:, 6:]).all()
    assert np.isfinite(outputs["logits"][:, :6]).all()
    assert set(outputs["top_ids"][0, :6].tolist()) == set(range(6))
    assert np.isneginf(outputs["top_logits"][:, 6:]).all()


def test_values_beyond_fp16(tmp_path):
    spec = spec_for(tiny_config())
    tensors = random_tensors(spec)
    tensors[spec.name("up", 1)][3, 3] = 1e6
    with pytest.raises(InputError, match=r"layers\.1.* beyond fp16"):
        write(tmp_path, "fp16", tensors)
