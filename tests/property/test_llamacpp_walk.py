"""Any sequence of calls leaves what it says: random walks, compared with fresh sessions."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import PassFailed
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.branches import Branches
from edgedec.runtimes.llamacpp.context import Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import LlamaSession

CAPACITY = 220
STEPS = 14
TOLERANCE = 1e-3
WALKS = 12


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_tiny_gguf(file, request.param)
    return LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))


class Walk:
    """A session, what it must hold, and dice."""

    def __init__(self, model: LlamaModel, seed: int) -> None:
        self.model = model
        self.rng = np.random.default_rng(seed)
        self.session: LlamaSession = model.open(CAPACITY)
        self.held: list[int] = []

    def tokens(self, count: int) -> list[int]:
        return [int(token) for token in self.rng.integers(4, 96, count)]

    def prefill(self) -> None:
        tokens = self.tokens(int(self.rng.integers(0, 20)))
        self.session.prefill(tokens)
        self.held += tokens

    def draft(self) -> None:
        """A tree that grows by up to three passes, and what becomes of it."""
        tree, start = TokenTree(self.tokens(1)[0]), 0
        rows: list[FloatArray] = []
        for _ in range(int(self.rng.integers(1, 4))):
            for token in self.tokens(int(self.rng.integers(start > 0, 7))):
                tree.add(token, int(self.rng.integers(0, len(tree))))
            scored = self.session.forward(tree, start)
            assert scored.logits is not None
            rows.append(scored.logits.copy())
            start = len(tree)
        for node in {0, int(self.rng.integers(0, start)), start - 1}:
            path = tree.tokens_on(tree.path_to(node))
            self.same(np.concatenate(rows)[node], self.held + path)
        if self.rng.random() < 0.3:
            tree.add(5, 0)  # added, but never computed
        if self.rng.random() < 0.2:
            self.session.rollback(len(self.held))
            return
        path = tree.path_to(int(self.rng.integers(0, start)))
        path = path[: int(self.rng.integers(0, len(path) + 1))]
        self.session.commit(path)
        self.held += tree.tokens_on(path)

    def rollback(self) -> None:
        length = int(self.rng.integers(0, len(self.held) + 1))
        self.session.rollback(length)
        del self.held[length:]

    def fork(self) -> None:
        length = int(self.rng.integers(0, len(self.held) + 1))
        other = self.session.fork(length)
        self.session.close()
        self.session = other
        del self.held[length:]

    def save(self) -> None:
        state = io.BytesIO()
        self.session.save(state)
        self.session.close()
        self.session = self.model.open(CAPACITY)
        self.session.prefill(self.tokens(3))
        self.session.load(io.BytesIO(state.getvalue()))

    def same(self, row: FloatArray, tokens: list[int]) -> None:
        session = self.model.open(len(tokens))
        session.prefill(tokens[:-1])
        expected = session.forward(TokenTree(tokens[-1])).logits
        assert expected is not None
        np.testing.assert_allclose(row, expected[0], rtol=0, atol=TOLERANCE)

    def run(self) -> None:
        steps = [self.prefill, self.draft, self.draft, self.draft, self.rollback]
        steps += [self.fork, self.save]
        for _ in range(STEPS):
            if len(self.held) > CAPACITY - 40:
                self.rollback()
            steps[int(self.rng.integers(0, len(steps)))]()
            assert self.session.length == len(self.held)
        scored = self.session.forward(TokenTree(7))
        assert scored.logits is not None
        self.same(scored.logits[0], [*self.held, 7])


@pytest.mark.parametrize("first_cells", [5, 1024])
@pytest.mark.parametrize("seed", range(WALKS))
def test_any_walk(
    model: LlamaModel, seed: int, first_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", first_cells)
    Walk(model, seed).run()


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
        Walk(model, seed).run()


@pytest.mark.parametrize("twin", [ForgetsThatItWentBack, ForgetsTheLosers])
def test_walks_notice(
    model: LlamaModel, twin: type[Branches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", twin)
    # llama.cpp refuses a batch that does not follow on what its cache holds.
    with pytest.raises(PassFailed, match="inconsistent sequence positions"):
        walk_all(model)
