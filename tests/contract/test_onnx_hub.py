"""Graphs that others exported pass the contract, however they are run; broken twins do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kinds import first
from ready_models import Layout, write_graph
from tiny_checkpoints import noisy_checkpoint

from edgedec.bundle import ready_onnx
from edgedec.bundle.ready_onnx import ReadyFacts
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.runtimes._ort.saved import Rows
from edgedec.runtimes.onnx_hub.graph import Mode
from edgedec.runtimes.onnx_hub.model import HubModel, HubSession
from edgedec.testing import SessionContract


@dataclass(frozen=True)
class Kind:
    layout: Layout
    mode: Mode


KINDS = {
    "in place": Kind(Layout(), Mode(True)),
    "padded": Kind(Layout(bits=4), Mode(True, 2)),
    "by fours": Kind(Layout(keep=True), Mode(True, 4)),
    "copied": Kind(Layout("parts", positions=True), Mode(False)),
    "copied and padded": Kind(Layout("parts"), Mode(False, 2)),
    "one by one": Kind(Layout(last_only=True), Mode(True, alone=True)),
}


def load(folder: Path, kind: Kind) -> HubModel:
    """Write a decoder and load it in a mode."""
    source = noisy_checkpoint(folder / "source", seed=0)
    config = json.loads((source / "config.json").read_text("utf-8"))
    write_graph(source, folder / "model.onnx", kind.layout, "model.onnx_data")
    columns = config["vocab_size"]
    facts = ReadyFacts("tiny", columns, columns, config["max_position_embeddings"], (0,))
    (folder / ready_onnx.READY).write_text(json.dumps(ready_onnx.as_json(facts)), "utf-8")
    return HubModel.load(folder / "model.onnx", threads=1, mode=kind.mode)


@pytest.fixture(scope="module", params=first(KINDS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HubModel:
    return load(tmp_path_factory.mktemp("ready"), KINDS[request.param])


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> HubModel:
    return load(tmp_path_factory.mktemp("half"), Kind(Layout(bits=16), Mode(True)))


class TestReady(SessionContract):
    @pytest.fixture
    def model(self, written: HubModel) -> HubModel:
        return written


class TestHalf(SessionContract):
    """Logits in half precision, about 4 in size, are a thousandth apart."""

    tolerance = 0.01

    @pytest.fixture
    def model(self, half: HubModel) -> HubModel:
        return half


# -- broken twins -------------------------------------------------------------------------------


class KeepsRejectedRows(HubSession):
    """A pass goes on after rejected tokens."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        length = self._length
        self._length = max(length, self._cache.held - self._pending)
        try:
            return super().forward(tree, start, want)
        finally:
            self._length = length


class LoadsNothing(HubSession):
    def _load_rows(self, rows: Sequence[Rows], length: int) -> None:
        super()._load_rows([0 * each for each in rows], length)


class SharesItsBuffer(HubSession):
    """A fork writes into the cache of the session that it came from."""

    def _copy(self, length: int) -> HubSession:
        other = super()._copy(length)
        other._cache, other._passes._cache = self._cache, self._cache
        return other


TWINS = [
    (KeepsRejectedRows, "test_commit_of_part_of_a_path"),
    (KeepsRejectedRows, "test_rollback_drops_a_pending_tree"),
    (LoadsNothing, "test_saved_and_loaded_elsewhere"),
    (SharesItsBuffer, "test_forks_part_ways"),
]


@pytest.mark.parametrize(("twin", "test"), TWINS)
def test_the_contract_catches(tmp_path: Path, twin: type[HubSession], test: str) -> None:
    model = load(tmp_path, KINDS["in place"])
    contract = SessionContract()
    getattr(contract, test)(model)  # the model itself passes: what fails is the twin
    model.session = twin
    with pytest.raises(AssertionError):
        getattr(contract, test)(model)
