"""Graphs that hand their cache back pass the contract, and twins broken on purpose do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from kinds import first
from tiny_optimum import write_tiny_graph

from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes.onnx_hub.model import HubModel, HubSession
from edgedec.testing import SessionContract

VARIANTS = {
    "positions": {},
    "counted": {"positions": False},
    "unequal": {"key": 12, "value": 4},  # as where keys and values have different widths
}


@pytest.fixture(scope="module", params=first(VARIANTS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_graph(tmp_path_factory.mktemp("graph"), **VARIANTS[request.param])


class TestOptimum(SessionContract):
    @pytest.fixture
    def model(self, written: Path) -> HubModel:
        return HubModel.load(written, threads=1)


# -- broken twins -------------------------------------------------------------------------------


class KeepsWhatWasDropped(HubSession):
    """The rows of rejected tokens stay between those that were kept."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        length = self._length
        self._length = self._cache.held - self._pending
        try:
            return super().forward(tree, start, want)
        finally:
            self._length = length


class CutsTheArrayAnywhere(HubSession):
    """Takes the beginning of the memory for the beginning of each head."""

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            self._cache.held = self._length
            self._cache.rows = self._cache._views(0, self._length)
            self._passes.run(chunk, self._length, head=False)


class ForksAnEmptyCache(HubSession):
    def _copy(self, length: int) -> HubSession:
        other = super()._copy(length)
        other._load_rows([0 * rows[:, :, :length] for rows in self._cache.rows], length)
        return other


class LoadsNothing(HubSession):
    def _load_rows(self, rows: Sequence[Rows], length: int) -> None:
        super()._load_rows([0 * each for each in rows], length)


class LosesPendingRows(HubSession):
    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        result = super().forward(tree, start, want)
        self._cache.keep(self._length)
        return result


TWINS = [
    (KeepsWhatWasDropped, "test_commit_of_part_of_a_path"),
    (KeepsWhatWasDropped, "test_rollback_drops_a_pending_tree"),
    (CutsTheArrayAnywhere, "test_rollback_and_continue"),
    (ForksAnEmptyCache, "test_forks_part_ways"),
    (LoadsNothing, "test_saved_and_loaded_elsewhere"),
    (LosesPendingRows, "test_a_pending_tree_grows"),
]


@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(written: Path, twin: type[HubSession], test: str) -> None:
    model = HubModel.load(written, threads=1)
    contract = SessionContract()
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    model.session = twin
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)
