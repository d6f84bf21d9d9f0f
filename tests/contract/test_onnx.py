"""Every format of an ONNX model passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from kinds import first
from session_kinds import loader
from tiny_models import write_tiny_model

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.session import OnnxSession
from edgedec.testing import SessionContract

Load = Callable[..., OnnxModel]

# int4 and int8 round activations: sums that differ in their last bit tip a digit here and there.
TOLERANCE = {"fp32": 1e-4, "int4": 0.3, "int8": 0.3}

# A branching tree's nodes stand in other slots than in the text, so that sums differ in their
# last bits: where activations are quantised a bit may tip a digit.
BRANCHING = {
    "test_a_tree_scores_every_path",
    "test_a_tree_right_after_a_one_token_prompt",
    "test_a_pending_tree_grows_branches",
    "test_more_branches_than_it_verifies_change_nothing",
    "test_commit_keeps_one_branch",
    "test_rounds_follow_one_another",
    "test_a_random_walk",
}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a tiny model of some format, written once."""
    return loader(tmp_path_factory)


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestOnnx(SessionContract):
    @pytest.fixture
    def model(self, load: Load, weights: str) -> OnnxModel:
        self.tolerance = TOLERANCE[weights]
        return load(weights, batch_invariant=False)


class TestTapped(SessionContract):
    """The streams before the first layer, between two, and after the last."""

    @pytest.fixture(params=[False, True], ids=["", "own rows"])
    def model(self, tmp_path: Path, request: pytest.FixtureRequest) -> OnnxModel:
        spec, _ = write_tiny_model(tmp_path, own_rows=request.param, taps=(0, 1, 2))
        assert spec.layers == 2
        return OnnxModel.load(tmp_path, threads=1, batch_invariant=request.param)


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
class TestRowInvariant(SessionContract):
    """Chains are the same to the last bit."""

    tolerance = 0.0

    @pytest.fixture
    def model(self, load: Load, weights: str, request: pytest.FixtureRequest) -> OnnxModel:
        if request.function.__name__ in BRANCHING:
            self.tolerance = TOLERANCE[weights]
        return load(weights, batch_invariant=True)


# -- broken twins -------------------------------------------------------------------------------


class LeavesRowsWhereTheyAre(OnnxSession):
    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        pass


class SeesEveryNode(OnnxSession):
    def _ancestors(self, tree: TokenTree, start: int) -> FloatArray:
        return np.zeros((len(tree) - start, len(tree)), np.float32)


class CountsSlotsForPositions(OnnxSession):
    def _branches(self, tree: TokenTree, start: int) -> None:
        mask = (self._length, self._ancestors(tree, start))
        self._passes.run(tree.tokens[start:], self._length + start, head=True, mask=mask)


class SendsATreeOntoAnEmptyCache(OnnxSession):
    def _first(self, tree: TokenTree, want: Want) -> Pass:
        self._branches(tree, 0)
        passes, rows = self._passes, len(tree)
        return Pass(0, passes.top_ids[:rows], passes.top_logits[:rows], passes.logits[:rows])


class ForksAnEmptyCache(OnnxSession):
    def _copy(self, length: int) -> OnnxSession:
        return OnnxSession(self._model, self.capacity, self._padding)


class ForgetsThatATreeGrew(OnnxSession):
    def _branches(self, tree: TokenTree, start: int) -> None:
        self._length += start
        try:
            super()._branches(tree, start)
        finally:
            self._length -= start


TWINS = [
    (LeavesRowsWhereTheyAre, "test_commit_keeps_one_branch"),
    (LeavesRowsWhereTheyAre, "test_rounds_follow_one_another"),
    (SeesEveryNode, "test_a_tree_scores_every_path"),
    (CountsSlotsForPositions, "test_a_tree_scores_every_path"),
    (SendsATreeOntoAnEmptyCache, "test_a_tree_right_after_a_one_token_prompt"),
    (ForgetsThatATreeGrew, "test_a_pending_tree_grows_branches"),
    (ForksAnEmptyCache, "test_forks_part_ways"),
]


@pytest.mark.parametrize("weights", first(["fp32", "int4", "int8"]))
@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(load: Load, weights: str, twin: type[OnnxSession], test: str) -> None:
    model = load(weights, batch_invariant=False)
    contract = SessionContract()
    contract.tolerance = TOLERANCE[weights]
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    model.session = twin
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)


@pytest.mark.parametrize("weights", ["fp32", "int4"])
def test_the_contract_catches_passes_that_are_not_padded(load: Load, weights: str) -> None:
    contract = SessionContract()
    contract.tolerance = 0.0
    contract.test_a_chain_scores_every_token(load(weights, batch_invariant=True))
    with pytest.raises(AssertionError):
        contract.test_a_chain_scores_every_token(load(weights, batch_invariant=False))
