"""Hybrids on ONNX Runtime pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from kinds import first
from session_kinds import loader
from tiny_lfm2 import CONFIG
from tiny_models import write_tiny_model

from edgedec.decoding.session import Rollback
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.hybrid import HybridSession, RecentTrail
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.recent import RecentRows
from edgedec.testing import SessionContract

Load = Callable[..., OnnxModel]

# int4 and int8 round activations: sums that differ in their last bit tip a digit here and there.
TOLERANCE = {"fp32": 1e-4, "int4": 0.3, "int8": 0.3}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny LFM2 of some format, written once."""
    return loader(tmp_path_factory, **CONFIG)


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestHybrid(SessionContract):
    @pytest.fixture
    def model(self, load: Load, weights: str) -> OnnxModel:
        self.tolerance = TOLERANCE[weights]
        model = load(weights, batch_invariant=False)
        assert model.capabilities.rollback is Rollback.RECENT
        assert model.capabilities.rejected is None
        assert not model.capabilities.tree
        return model


class TestTapped(SessionContract):
    """The streams before the first layer, between two, and after the last."""

    @pytest.fixture(params=[False, True], ids=["", "own rows"])
    def model(self, tmp_path: Path, request: pytest.FixtureRequest) -> OnnxModel:
        write_tiny_model(tmp_path, own_rows=request.param, taps=(0, 2, 4), **CONFIG)
        return OnnxModel.load(tmp_path, threads=1, batch_invariant=request.param)


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestRowInvariant(SessionContract):
    """Rows are the same to the last bit, however a session went back."""

    tolerance = 0.0

    @pytest.fixture
    def model(self, load: Load, weights: str) -> OnnxModel:
        return load(weights, batch_invariant=True)


class TestFewRows(SessionContract):
    """Memory for as few rows as there can be, which moves and grows in the middle of everything."""

    @pytest.fixture
    def model(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> OnnxModel:
        monkeypatch.setattr("edgedec.runtimes.onnx.recent._BACK", 0)
        monkeypatch.setattr("edgedec.runtimes.onnx.recent.ROUND", 1)
        return load("fp32", batch_invariant=False)


@pytest.mark.parametrize("weights", ["fp32", "int4"])
def test_drafted_text_has_the_bits_of_one_token_at_a_time(load: Load, weights: str) -> None:
    """Passes of 1 to 5 rows, of which 0 to all are kept, garbage behind them."""
    model, rng = load(weights, batch_invariant=True), np.random.default_rng(3)
    text = [int(token) for token in rng.integers(0, 96, 60)]
    plain, session = model.open(128), model.open(128)
    expected: list[FloatArray] = []
    for token in text:
        expected.append(SessionContract.logits(plain, TokenTree(token))[0])
        plain.commit([0])
    done, passes = 0, 0
    while done < len(text):
        rows = int(rng.integers(1, 6))
        kept = min(int(rng.integers(0, rows + 1)), len(text) - done)
        garbage = [int(token) for token in rng.integers(0, 96, rows - kept)]
        tree = TokenTree.chain([*text[done : done + kept], *garbage])
        got = SessionContract.logits(session, tree)
        for row, alone in zip(got[:kept], expected[done : done + kept], strict=True):
            np.testing.assert_array_equal(row, alone)
        session.commit(range(kept))
        done, passes = done + kept, passes + 1
    assert passes < len(text)


# -- broken twins -------------------------------------------------------------------------------


class OneRowAhead(RecentRows):
    """The state after a token that is still to come, or was rejected."""

    def before(self, at: int) -> FloatArray:
        return super().before(at + 1 if self.holds(at + 1) else at)


class DropsAPendingRow(RecentRows):
    """The last row of a pass is not there for the next one."""

    def put(self, rows: FloatArray, at: int) -> None:
        super().put(rows, at)
        if rows.shape[1] > 1:
            self._rows[:, self._end - 1 - self._first] = 0


class WindowOffByOne(RecentRows):
    """A convolution that reads from a token too early."""

    def before(self, at: int) -> FloatArray:
        return super().before(at - 1 if self.holds(at - 1) else at)


class LosesRowsThatMove(RecentRows):
    def _make_room(self, at: int, end: int) -> None:
        super()._make_room(at, end)
        self._rows[:, : self.kept] = 0


TWINS: list[tuple[type[RecentRows], str]] = [
    (OneRowAhead, "test_commit_of_part_of_a_path"),
    (OneRowAhead, "test_rollback_drops_a_pending_tree"),
    (DropsAPendingRow, "test_prefill_is_the_same_as_token_by_token"),
    (DropsAPendingRow, "test_commit_of_part_of_a_path"),
    (WindowOffByOne, "test_a_pending_tree_grows"),
    (WindowOffByOne, "test_rounds_follow_one_another"),
    *((twin, "test_a_random_walk") for twin in (OneRowAhead, DropsAPendingRow, WindowOffByOne)),
]


@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(
    load: Load, twin: type[RecentRows], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = SessionContract()
    getattr(contract, test)(load("fp32", batch_invariant=False))
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.RecentRows", twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(load("fp32", batch_invariant=False))


def test_the_contract_catches_rows_that_are_lost_as_they_move(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.onnx.recent._BACK", 0)
    monkeypatch.setattr("edgedec.runtimes.onnx.recent.ROUND", 1)
    contract = SessionContract()
    contract.test_rounds_follow_one_another(load("fp32", batch_invariant=False))
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.RecentRows", LosesRowsThatMove)
    with pytest.raises(AssertionError):
        contract.test_rounds_follow_one_another(load("fp32", batch_invariant=False))


class RepeatsAnotherToken(RecentTrail):
    def _read(self, cache: HybridSession, tokens: Sequence[int], at: int) -> None:
        super()._read(cache, [*tokens[:-1], 7], at)


def test_the_contract_catches_other_tokens_that_are_read_again(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.onnx.recent._BACK", 0)
    monkeypatch.setattr("edgedec.runtimes.onnx.recent.ROUND", 1)
    model, contract = load("fp32", batch_invariant=False), SessionContract()
    contract.test_rollback_and_continue(model)
    monkeypatch.setattr("edgedec.runtimes.onnx.hybrid.RecentTrail", RepeatsAnotherToken)
    with pytest.raises(AssertionError):
        contract.test_rollback_and_continue(model)
