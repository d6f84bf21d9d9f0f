"""Graphs on OpenVINO pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import again, first, in_full
from rounded_weights import rounded
from test_exported import VARIANTS
from tiny_models import MemoryTensors, write_tiny_model

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.export.reference import Reference
from edgedec.testing import SessionContract

pytest.importorskip("openvino", reason="needs the extra openvino")

from openvino import opset13 as op

from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.openvino import attention, opening, products
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


@pytest.fixture(scope="module")
def shared(load: Load) -> Load:
    """Loads a model once: the contract closes its sessions alone."""
    return functools.cache(load)


@pytest.mark.parametrize("own_rows", first([False, True]))
@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestOpenVino(SessionContract):
    @pytest.fixture
    def model(self, shared: Load, weights: str, own_rows: bool) -> OpenVinoModel:
        self.tolerance = TOLERANCE[weights]
        return shared(weights, own_rows)


@pytest.mark.parametrize("weights", ["fp32", "int4"])
def test_a_trimmed_head_drafts_the_same_tokens(weights: str, tmp_path: Path) -> None:
    drafted = (1, 5, 20, 40, 41, 42, 60, 80, 90)
    write_tiny_model(tmp_path, weights, drafted=drafted)
    tree = TokenTree(3)
    for token, parent in ((7, 0), (2, 0), (20, 1)):
        tree.add(token, parent)
    rows = []
    for kernels in (OnnxModel.load, OpenVinoModel.compile):
        model = kernels(tmp_path, threads=1)
        session = model.open(16)
        session.prefill([4, 5, 6])
        found = session.forward(tree)
        assert found.logits is not None
        assert np.isin(found.top_ids, drafted).all()
        rows.append(found.logits.copy())
        session.close()
    for row in rows:
        assert np.flatnonzero(np.isfinite(row[0])).tolist() == list(drafted)
    one, other = (row[:, list(drafted)] for row in rows)
    np.testing.assert_allclose(one, other, atol=TOLERANCE[weights])


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> OpenVinoModel:
    folder = tmp_path_factory.mktemp("tapped")
    write_tiny_model(folder, "fp32", taps=(0, 1, 2))
    return OpenVinoModel.compile(folder, threads=1)


class TestTapped(SessionContract):
    """The streams before the first layer, between two, and after the last."""

    @pytest.fixture
    def model(self, tapped: OpenVinoModel) -> OpenVinoModel:
        return tapped


@pytest.fixture(scope="module", params=again(["window", "gemma3", "qwen3", "phi3", "gpt2"]))
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


PROMPT, CHAINS = range(1, 21), (1, 5, 1, 8, 3)


def logits(model: OnnxModel) -> FloatArray:
    """Logits of chains and of single tokens after a prompt; the first token of each is kept."""
    session = model.open(64)
    session.prefill(PROMPT)
    rows = []
    for width in CHAINS:
        found = session.forward(TokenTree.chain(range(2, 2 + width))).logits
        assert found is not None
        rows.append(found.copy())
        session.commit([0])
    session.close()
    return np.concatenate(rows)


def in_parts(model: OpenVinoModel, widths: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Return logits of a text computed in parts after a prompt, and what the cache then holds."""
    session = model.open(1024)
    session.prefill([token % 90 for token in range(250)])
    rows, text = [], [7 * token % 90 for token in range(24)]
    for width in widths:
        chain, text = text[:width], text[width:]
        found = session.forward(TokenTree.chain(chain)).logits
        assert found is not None
        rows.append(found.copy())
        session.commit(range(width))
    held = session._cache.rows[:, :, :270].copy()
    session.close()
    return np.concatenate(rows)[:23], held


WAYS = ((1,) * 24, (17, 1, 6), (5, 3, 8, 8), (2, 10, 12), (14, 1, 1, 8))


@pytest.mark.parametrize("weights", ["fp32", "int4", "int8"])
def test_rows_do_not_depend_on_how_a_text_is_cut(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(tmp_path, weights, max_position_embeddings=1024)
    model = OpenVinoModel.compile(tmp_path, threads=1)
    whole = in_parts(model, (24,))
    same = all(
        np.array_equal(one, other)
        for widths in WAYS
        for one, other in zip(in_parts(model, widths), whole, strict=True)
    )
    # On some processors the products of a format do depend on the number of rows.
    assert model.capabilities.batch_invariant == same
    # In the form that adds up a pass's own values apart from the cache's.
    monkeypatch.setattr(attention, "_mixed", sums_apart)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing known"))
    opening._core.cache_clear()
    try:
        twin = OpenVinoModel.compile(tmp_path, threads=1)
        assert not twin.capabilities.batch_invariant
        assert not np.array_equal(in_parts(twin, WAYS[0])[0], in_parts(twin, (24,))[0])
        with pytest.raises(RuntimeUnavailable, match="no padding makes rows independent"):
            OpenVinoModel.compile(tmp_path, threads=1, batch_invariant=True)
    finally:
        opening._core.cache_clear()


def sums_apart(chances: Any, past: Any, own: Any, places: Any, _: Any) -> Any:
    """As ``attention._mixed``, but for the order of its sum."""
    of_own = op.gather(chances, places, np.array([-1]))
    # The cache's slots of the pass's own rows hold what an earlier pass left: they are nothing.
    zeros = op.subtract(of_own, of_own)
    of_past = op.scatter_update(chances, places, zeros, np.array([3]))
    return op.add(
        op.matmul(of_past, past, transpose_a=False, transpose_b=False),
        op.matmul(of_own, own, transpose_a=False, transpose_b=False),
    )


EXPERTS = ("olmoe", "qwen3_moe")


@pytest.mark.parametrize("name", in_full(sorted(set(VARIANTS) - set(EXPERTS)), 3))
def test_every_kind_of_decoder_computes_what_it_does_on_onnx_runtime(
    name: str, tmp_path: Path
) -> None:
    write_tiny_model(tmp_path, "fp32", **VARIANTS[name])
    expected = logits(OnnxModel.load(tmp_path, threads=1, batch_invariant=False))
    np.testing.assert_allclose(
        logits(OpenVinoModel.compile(tmp_path, threads=1)), expected, atol=1e-3
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_weights_are_what_they_stand_for(
    bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, arrays = write_tiny_model(tmp_path, f"int{bits}")
    in_floats = Reference(spec, MemoryTensors(rounded(spec, arrays, bits)))
    expected = np.concatenate([
        in_floats.logits([*PROMPT, *[2] * before, *range(2, 2 + width)])[-width:]
        for before, width in enumerate(CHAINS)
    ])  # fmt: skip

    def error(model: OnnxModel) -> float:
        return float(np.abs(logits(model) - expected).mean())

    # With VNNI instructions OpenVINO rounds activations to int8 in the blocks of the weights, as
    # ONNX Runtime does everywhere; without them it takes them in float32.
    rounding = error(OnnxModel.load(tmp_path, threads=1, batch_invariant=False))
    assert error(OpenVinoModel.compile(tmp_path, threads=1)) < 1.1 * rounding
    # The control: codes whose zero point is off by one.
    moved = {bits: middle - 1 for bits, middle in products._MIDDLES.items()}
    monkeypatch.setattr(products, "_MIDDLES", moved)
    assert error(OpenVinoModel.compile(tmp_path, threads=1)) > 1.5 * rounding


@pytest.mark.parametrize("name", EXPERTS)
def test_mixtures_of_experts_are_refused(name: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "fp32", **VARIANTS[name])
    with pytest.raises(RuntimeUnavailable, match=r"OpenVINO cannot run it: .*MoE"):
        OpenVinoModel.compile(tmp_path, threads=1)


# -- broken twins -------------------------------------------------------------------------------


class SeesSlotsThatAreNotWritten(OpenVinoPasses):
    def _seen(self, count: int, past: int, slots: int, mask: Mask) -> FloatArray:
        seen = super()._seen(count, past, slots, mask)
        seen[:, past + count :] = 0
        return seen


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
    whole = OnnxModel.load(tmp_path, threads=1, batch_invariant=False)
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
    def last(model: OnnxModel, siblings: int) -> FloatArray:
        session = model.open(64)
        session.prefill(range(1, 21))
        tree = TokenTree(1)
        for token in range(siblings):
            tree.add(token, 0)
        node = 0
        for token in range(20, 40):
            node = tree.add(token, node)
        found = session.forward(tree).logits
        assert found is not None
        return found[-1].copy()

    write_tiny_model(tmp_path, "fp32", **VARIANTS["window"])
    model = OpenVinoModel.compile(tmp_path, threads=1, batch_invariant=False)
    expected = last(model, 0)
    np.testing.assert_allclose(last(model, 8), expected, atol=1e-4)
    model.session = broken(NumbersSlotsForPositions)
    assert not np.allclose(last(model, 8), expected, atol=1e-3)


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
