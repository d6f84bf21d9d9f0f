"""Any sequence of calls leaves what it says: random walks, compared with fresh sessions."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from kinds import in_full
from tiny_gguf import write_tiny_gguf

from edgedec.errors import PassFailed
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import Branches
from edgedec.testing import SessionContract

CAPACITY = 220
STEPS = 14
WALKS = 12


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_tiny_gguf(file, request.param)
    return LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))


def walk(model: LlamaModel, seed: int) -> None:
    contract = SessionContract()
    contract.tolerance = 1e-3
    contract.walk(model, seed, CAPACITY, STEPS)


@pytest.mark.parametrize("first_cells", [5, 1024])
@pytest.mark.parametrize("seed", in_full(range(WALKS), WALKS // 3))
def test_any_walk(
    model: LlamaModel, seed: int, first_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", first_cells)
    walk(model, seed)


class ForgetsThatItWentBack(Branches):
    def cut(self, length: int) -> None:
        self.forget()


class ForgetsTheLosers(Branches):
    def keep(self, context: Context, path: list[int], length: int) -> None:  # type: ignore[override]
        winner = self._via[path[-1]] if path else 0
        context.remove(winner, length + len(path))
        if winner:
            context.remove(0, length)
            context.share(winner, 0, length, length + len(path))
        self.forget()


def walk_all(model: LlamaModel) -> None:
    for seed in range(WALKS):
        walk(model, seed)


@pytest.mark.parametrize("twin", [ForgetsThatItWentBack, ForgetsTheLosers])
def test_walks_notice(
    model: LlamaModel, twin: type[Branches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", twin)
    # llama.cpp refuses most batches that do not follow on what its cache holds.
    with pytest.raises((AssertionError, PassFailed)):
        walk_all(model)
