"""Hybrids on ONNX Runtime pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_granite
import tiny_lfm2
import tiny_qwen3_5
from kinds import first
from session_kinds import loader
from tiny_models import write_tiny_model

from edgedec.decoding.session import Rollback
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.hybrid import HybridSession, RecentTrail
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.recent import RecentRows
from edgedec.runtimes.onnx.recurrent import RecurrentRows
from edgedec.testing import SessionContract

Load = Callable[..., OnnxModel]
FAMILIES = {
    "lfm2": tiny_lfm2.CONFIG,
    "qwen3_5": tiny_qwen3_5.CONFIG,
    "granitemoehybrid": tiny_granite.CONFIG,
}
KINDS = [(weights, family) for weights in ("fp32", "int4", "int8") for family in FAMILIES]
both = pytest.mark.parametrize("family", FAMILIES)

# int4 and int8 round activations: sums that differ in their last bit tip a digit here and there.
TOLERANCE = {"fp32": 1e-4, "int4": 0.3, "int8": 0.3}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny hybrid of some family and format, written once."""
    loads = {family: loader(tmp_path_factory, **config) for family, config in FAMILIES.items()}
    return lambda weights, family, **how: loads[family](weights, **how)


@pytest.mark.parametrize("kind", [KINDS[0], *first(KINDS[1:])])
class TestHybrid(SessionContract):
    @pytest.fixture
    def model(self, load: Load, kind: tuple[str, str]) -> OnnxModel:
        self.tolerance = TOLERANCE[kind[0]]
        model = load(*kind, batch_invariant=False)
        assert model.capabilities.rollback is Rollback.RECENT
        assert model.capabilities.rejected is None
        assert not model.capabilities.tree
        return model


@pytest.mark.parametrize("family", first(FAMILIES))
class TestTapped(SessionContract):
    """The streams before the first layer, between two, and after the last."""

    @pytest.fixture(params=first([False, True]), ids=["", "own rows"])
    def model(self, tmp_path: Path, request: pytest.FixtureRequest, family: str) -> OnnxModel:
        write_tiny_model(tmp_path, own_rows=request.param, taps=(0, 2, 4), **FAMILIES[family])
        return OnnxModel.load(tmp_path, threads=1, batch_invariant=request.param)


@pytest.mark.parametrize("kind", first(KINDS))
class TestRowInvariant(SessionContract):
    """Rows are the same to the last bit, however a session went back."""

    tolerance = 0.0

    @pytest.fixture
    def model(self, load: Load, kind: tuple[str, str]) -> OnnxModel:
        return load(*kind, batch_invariant=True)


@pytest.mark.parametrize("family", first(FAMILIES))
class TestFewRows(SessionContract):
    """Memory for as few rows as there can be, which moves and grows in the middle of everything."""

    @pytest.fixture
    def model(self, load: Load, family: str, few: None) -> OnnxModel:
        return load("fp32", family, batch_invariant=False)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedec.runtimes.onnx.recent._BACK", 0)
    for module in ("recent", "recurrent"):
        monkeypatch.setattr(f"edgedec.runtimes.onnx.{module}.ROUND", 1)


@pytest.mark.parametrize(("weights", "family"), [kind for kind in KINDS if kind[0] != "int8"])
def test_drafted_text_has_the_bits_of_one_token_at_a_time(
    load: Load, weights: str, family: str
) -> None:
    """Passes of 1 to 5 rows, of which 0 to all are kept, garbage behind them."""
    model, rng = load(weights, family, batch_invariant=True), np.random.default_rng(3)
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


# Each is mixed into the rows of a convolution alone, and into those of a recurrence.
Rows: Any = object


class OneRowAhead(Rows):
    """The state after a token that is still to come, or was rejected."""

    def before(self, at: int) -> FloatArray:
        rows: FloatArray = super().before(at + 1 if self.holds(at + 1) else at)
        return rows


class DropsAPendingRow(Rows):
    """The last row of a pass is not there for the next one."""

    def put(self, rows: FloatArray, at: int) -> None:
        super().put(rows, at)
        if rows.shape[1] > 1:
            self._rows[:, self._end - 1 - self._first] = 0


class WindowOffByOne(Rows):
    """A convolution that reads from a token too early."""

    def before(self, at: int) -> FloatArray:
        rows: FloatArray = super().before(at).copy()
        rows[:, : self.kept] = np.roll(rows[:, : self.kept], 1, axis=1)
        return rows


class StateOfAnotherPass(Rows):
    """The state after a pass of which rows were rejected."""

    def _source(self, at: int) -> int:
        return self._base if self._after is None else self._after


class LosesRowsThatMove(Rows):
    def _make_room(self, at: int, end: int) -> None:
        super()._make_room(at, end)
        self._rows[:, : self.kept] = 0


def mix(monkeypatch: pytest.MonkeyPatch, twin: type) -> None:
    """Break the rows of all sessions that are opened."""
    for own in (RecentRows, RecurrentRows):
        broken = type(twin.__name__, (twin, own), {})
        monkeypatch.setattr(f"edgedec.runtimes.onnx.graph.{own.__name__}", broken)


TWINS: list[tuple[type, str]] = [
    (OneRowAhead, "test_commit_of_part_of_a_path"),
    (OneRowAhead, "test_rollback_drops_a_pending_tree"),
    (DropsAPendingRow, "test_commit_of_part_of_a_path"),
    (WindowOffByOne, "test_a_pending_tree_grows"),
    (WindowOffByOne, "test_rounds_follow_one_another"),
    *((twin, "test_a_random_walk") for twin in (OneRowAhead, DropsAPendingRow, WindowOffByOne)),
]
CAUGHT = [(*each, family) for each in TWINS for family in FAMILIES]
# Of a recurrence, the state holds a prefill's rows.
CAUGHT += [
    (DropsAPendingRow, "test_prefill_is_the_same_as_token_by_token", "lfm2"),
    (StateOfAnotherPass, "test_commit_of_part_of_a_path", "qwen3_5"),
    (StateOfAnotherPass, "test_a_random_walk", "qwen3_5"),
]


@pytest.mark.parametrize(("twin", "test", "family"), CAUGHT)
def test_the_contract_catches(
    load: Load, twin: type, test: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = SessionContract()
    getattr(contract, test)(load("fp32", family, batch_invariant=False))
    mix(monkeypatch, twin)
    with pytest.raises(AssertionError):
        getattr(contract, test)(load("fp32", family, batch_invariant=False))


@both
def test_the_contract_catches_rows_that_are_lost_as_they_move(
    load: Load, family: str, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = SessionContract()
    contract.test_rounds_follow_one_another(load("fp32", family, batch_invariant=False))
    mix(monkeypatch, LosesRowsThatMove)
    with pytest.raises(AssertionError):
        contract.test_rounds_follow_one_another(load("fp32", family, batch_invariant=False))


class RepeatsAnotherToken(RecentTrail):
    def _read(self, cache: HybridSession, tokens: Sequence[int], at: int) -> None:
        super()._read(cache, [*tokens[:-1], 7], at)


@both
def test_the_contract_catches_other_tokens_that_are_read_again(
    load: Load, family: str, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, contract = load("fp32", family, batch_invariant=False), SessionContract()
    contract.test_rollback_and_continue(model)
    monkeypatch.setattr("edgedec.runtimes.onnx.hybrid.RecentTrail", RepeatsAnotherToken)
    with pytest.raises(AssertionError):
        contract.test_rollback_and_continue(model)
