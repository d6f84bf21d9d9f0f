"""Layers that read other layers' caches pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from kinds import again, first
from session_kinds import loader
from tiny_gemma4 import CONFIG, UNSHARED, StaleRows
from tiny_models import MemoryTensors, write_tiny_model

from edgedec.decoding.tree import TokenTree
from edgedec.export.reference import Reference
from edgedec.runtimes.onnx.cache import KvCache, Rows
from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.testing import SessionContract

Load = Callable[..., OnnxModel]

# int4 and int8 round activations: sums that differ in their last bit tip a digit here and there.
TOLERANCE = {"fp32": 1e-4, "int4": 0.5, "int8": 0.5}
LAYERS = CONFIG["num_hidden_layers"]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny Gemma 4 of some format, written once."""
    return loader(tmp_path_factory, **CONFIG)


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestShared(SessionContract):
    @pytest.fixture
    def model(self, load: Load, weights: str) -> OnnxModel:
        self.tolerance = TOLERANCE[weights]
        return load(weights, batch_invariant=False)


@pytest.mark.parametrize("own_rows", again([True]))
class TestTapped(SessionContract):
    """The streams before the first layer, before one that reads another's cache, and the last."""

    @pytest.fixture
    def model(self, tmp_path: Path, own_rows: bool) -> OnnxModel:
        write_tiny_model(tmp_path, own_rows=own_rows, taps=(0, 5, LAYERS), **CONFIG)
        return OnnxModel.load(tmp_path, threads=1, batch_invariant=own_rows)


@pytest.mark.parametrize("weights", again(["fp32"]))
class TestUnshared(SessionContract):
    """Heads that differ by layer, and values that are keys."""

    @pytest.fixture
    def model(self, tmp_path: Path, weights: str) -> OnnxModel:
        write_tiny_model(tmp_path, weights, **UNSHARED)
        return OnnxModel.load(tmp_path, threads=1, batch_invariant=False)


def test_a_cache_has_the_layers_that_write_one(load: Load) -> None:
    """Two arrays: three sliding layers with two heads of 16 channels, a full one of 32."""
    model = load("fp32", batch_invariant=False)
    cache = model.graph.new_cache(8)
    assert [rows.shape for rows in cache.groups] == [(6, 2, 8, 16), (2, 2, 8, 32)]
    assert model.info.kv_bytes_per_token == 4 * (6 * 2 * 16 + 2 * 2 * 32)
    bound = model.graph.caches
    assert bound["key_6"] == bound["key_3"] == (1, 0)
    assert bound["value_4"] == bound["value_5"] == bound["value_2"] == (0, 5)
    cache.close()


# -- broken twins -------------------------------------------------------------------------------


def _logits(model: OnnxModel, text: Sequence[int]) -> np.ndarray:
    session = model.open(64)
    session.prefill(text[:20])
    found = SessionContract.logits(session, TokenTree.chain(text[20:])).copy()
    session.close()
    return found


def _reads_another_layer(graph: Graph) -> dict[str, tuple[int, int]]:
    """Layer 5 reads layer 1's cache, which has the same sizes."""
    honest = _honest(graph)
    return honest | {f"{part}_5": honest[f"{part}_1"] for part in ("key", "value")}


_honest = Graph.caches.fget  # type: ignore[attr-defined]


def test_a_layer_that_reads_another_than_its_own_lender_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that it writes are its lender's, on top of what another layer left there."""
    spec, tensors = write_tiny_model(tmp_path, "fp32", **CONFIG)
    model = OnnxModel.load(tmp_path, threads=1, batch_invariant=False)
    text = np.random.default_rng(5).integers(1, 96, 28).tolist()
    expected = Reference(spec, MemoryTensors(tensors)).logits(text)[20:]
    np.testing.assert_allclose(_logits(model, text), expected, rtol=0, atol=1e-4)
    monkeypatch.setattr(Graph, "caches", property(_reads_another_layer))
    assert np.abs(_logits(model, text) - expected).max() > 0.01


class CutToTheWindow(KvCache):
    """What is copied are the last tokens that the first kind of layer sees, for all layers."""

    def load(self, groups: Sequence[Rows]) -> None:
        super().load(groups)
        for rows in self.groups:
            rows[:, :, : max(groups[0].shape[2] - CONFIG["sliding_window"], 0)] = 0


class LosesTheSecondArray(KvCache):
    def load(self, groups: Sequence[Rows]) -> None:
        super().load(groups[:1] + [rows * 0 for rows in groups[1:]])


TWINS: list[tuple[type[KvCache], str]] = [
    (StaleRows, "test_commit_keeps_one_branch"),
    (StaleRows, "test_rounds_follow_one_another"),
    (CutToTheWindow, "test_saved_and_loaded_elsewhere"),
    (LosesTheSecondArray, "test_forks_part_ways"),
    (StaleRows, "test_a_random_walk"),
    (LosesTheSecondArray, "test_a_random_walk"),
]


@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(
    load: Load, twin: type[KvCache], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = SessionContract()
    getattr(contract, test)(load("fp32", batch_invariant=False))
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.KvCache", twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(load("fp32", batch_invariant=False))
