"""Graphs on OpenVINO pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_exported import VARIANTS
from tiny_models import write_tiny_model

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.testing import SessionContract

pytest.importorskip("openvino", reason="needs the extra openvino")

from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import opening, products
from edgedec.runtimes.onnx.openvino.cache import GrowingCache
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel, OpenVinoSession
from edgedec.runtimes.onnx.openvino.passes import OpenVinoPasses

TOLERANCE = {"fp32": 1e-4, "int4": 0.3, "int8": 0.3}

Mask = tuple[int, FloatArray] | None
Load = Callable[..., OpenVinoModel]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny model of some format, written once."""
    written: dict[str, Path] = {}

    def load(weights: str, own_rows: bool = False) -> OpenVinoModel:
        key = f"{weights}-{own_rows}"
        if key not in written:
            written[key] = tmp_path_factory.mktemp(key)
            write_tiny_model(written[key], weights, own_rows=own_rows)
        return OpenVinoModel.compile(written[key], threads=1)

    return load


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("weights", ["fp32", "int4", "int8"])
class TestOpenVino(SessionContract):
    @pytest.fixture
    def model(self, load: Load, weights: str, own_rows: bool) -> OpenVinoModel:
        self.tolerance = TOLERANCE[weights]
        return load(weights, own_rows)


@pytest.fixture(scope="module", params=["window", "gemma3", "qwen3", "phi3", "gpt2"])
def variant(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> OpenVinoModel:
    folder = tmp_path_factory.mktemp(request.param)
    write_tiny_model(folder, "fp32", **VARIANTS[request.param])
    return OpenVinoModel.compile(folder, threads=1)


class TestVariants(SessionContract):
    """Windows, caps, norms of query and key, learned positions."""

    @pytest.fixture
    def model(self, variant: OpenVinoModel) -> OpenVinoModel:
        return variant


def logits(model: OnnxModel) -> FloatArray:
    """Logits of a prompt's last token, of chains and of single tokens."""
    session = model.open(64)
    session.prefill(range(1, 21))
    rows = []
    for width in (1, 5, 1, 8, 3):
        found = session.forward(TokenTree.chain(range(2, 2 + width))).logits
        assert found is not None
        rows.append(found.copy())
        session.commit([0])
    session.close()
    return np.concatenate(rows)


EXPERTS = ("olmoe", "qwen3_moe")


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - set(EXPERTS)))
def test_every_kind_of_decoder_computes_what_it_does_on_onnx_runtime(
    name: str, tmp_path: Path
) -> None:
    write_tiny_model(tmp_path, "fp32", **VARIANTS[name])
    expected = logits(OnnxModel.load(tmp_path, threads=1, row_invariant=False))
    np.testing.assert_allclose(
        logits(OpenVinoModel.compile(tmp_path, threads=1)), expected, atol=1e-3
    )


@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_quantised_weights_are_those_of_onnx_runtime(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(tmp_path, weights)
    expected = logits(OnnxModel.load(tmp_path, threads=1, row_invariant=False))
    error = np.abs(logits(OpenVinoModel.compile(tmp_path, threads=1)) - expected).mean()
    moved = {bits: middle - 1 for bits, middle in products._MIDDLES.items()}
    monkeypatch.setattr(products, "_MIDDLES", moved)
    broken = np.abs(logits(OpenVinoModel.compile(tmp_path, threads=1)) - expected).mean()
    assert error < 1e-3
    assert broken > 1e-2


@pytest.mark.parametrize("name", EXPERTS)
def test_mixtures_of_experts_are_refused(name: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "fp32", **VARIANTS[name])
    with pytest.raises(RuntimeUnavailable, match=r"OpenVINO cannot run it: .*MoE"):
        OpenVinoModel.compile(tmp_path, threads=1)


# -- broken twins -------------------------------------------------------------------------------


class SeesSlotsThatAreNotWritten(OpenVinoPasses):
    def _seen(self, count: int, past: int, slots: int, mask: Mask) -> FloatArray:
        return super()._seen(count, slots, slots, mask)


class ForgetsWhatItComputed(OpenVinoPasses):
    def _keep(self, written: FloatArray, past: int) -> None:
        pass


class GrowsWithoutWhatItHolds(GrowingCache):
    def _replace(self, slots: int, kept: int) -> None:
        super()._replace(slots, 0)


class NumbersSlotsForPositions(OpenVinoPasses):
    def _inputs(self, *args: Any) -> dict[str, Any]:
        feeds = super()._inputs(*args)
        feeds["slots"] = np.arange(feeds["slots"].size)
        return feeds


def broken(twin: type[OpenVinoPasses]) -> type[OpenVinoSession]:
    return type("Broken", (OpenVinoSession,), {"passes": twin})


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (SeesSlotsThatAreNotWritten, "test_a_chain_scores_every_token"),
        (ForgetsWhatItComputed, "test_a_chain_scores_every_token"),
    ],
)
def test_the_contract_catches(load: Load, twin: type[OpenVinoPasses], test: str) -> None:
    model = load("fp32")
    contract = SessionContract()
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    model.session = broken(twin)
    try:
        with pytest.raises(AssertionError):
            getattr(contract, test)(model)
    finally:
        model.session = OpenVinoSession


def test_a_text_longer_than_the_first_cache_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(tmp_path, "fp32", max_position_embeddings=1024)
    whole = OnnxModel.load(tmp_path, threads=1, row_invariant=False)
    model = OpenVinoModel.compile(tmp_path, threads=1)

    def after(model: OnnxModel) -> FloatArray:
        session = model.open(1024)
        session.prefill([token % 90 for token in range(700)])
        found = session.forward(TokenTree.chain([1, 2, 3])).logits
        assert found is not None
        return found.copy()

    np.testing.assert_allclose(after(model), after(whole), atol=1e-3)
    monkeypatch.setattr(opening, "GrowingCache", GrowsWithoutWhatItHolds)
    assert not np.allclose(after(model), after(whole), atol=1e-3)


def test_a_window_counts_positions_and_not_slots(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "fp32", **VARIANTS["window"])
    expected = logits(OnnxModel.load(tmp_path, threads=1, row_invariant=False))
    model = OpenVinoModel.compile(tmp_path, threads=1)
    np.testing.assert_allclose(logits(model), expected, atol=1e-3)
    model.session = broken(NumbersSlotsForPositions)
    assert not np.allclose(logits(model), expected, atol=1e-3)


class HasAsManySlotsAsItsSession(GrowingCache):
    def __init__(self, shape: tuple[int, int, int, int], dtype: Any) -> None:
        KvCache.__init__(self, shape, dtype)


def test_bits_depend_neither_on_the_room_nor_on_earlier_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(tmp_path, "int4", max_position_embeddings=1024)
    model = OpenVinoModel.compile(tmp_path, threads=1)

    def after(room: int, before: int = 0) -> FloatArray:
        session = model.open(room)
        session.prefill([token % 90 for token in range(before)])
        session.rollback(0)
        session.prefill(range(1, 41))
        found = session.forward(TokenTree.chain([1, 2, 3])).logits
        assert found is not None
        return found.copy()

    expected = after(1024)
    np.testing.assert_array_equal(after(51), expected)
    np.testing.assert_array_equal(after(1024, 700), expected)
    monkeypatch.setattr(opening, "GrowingCache", HasAsManySlotsAsItsSession)
    assert not np.array_equal(after(51), expected)
