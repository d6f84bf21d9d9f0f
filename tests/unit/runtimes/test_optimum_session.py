"""What the contract does not say: memory, interruption."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_optimum import VOCAB, write_tiny_graph

from edgedec.decoding.tree import TokenTree
from edgedec.runtimes.onnx_hub.model import HubModel


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> HubModel:
    return HubModel.load(write_tiny_graph(tmp_path_factory.mktemp("written")), threads=1)


def text(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, count)]


def test_nothing_is_moved_while_everything_is_kept(
    model: HubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass after one that was kept costs the graph's own copy only."""
    session, moved = model.open(64), list[int]()
    keep = session._cache.keep

    def watched(length: int) -> None:
        moved.append(session._cache.held - length)
        keep(length)

    monkeypatch.setattr(session._cache, "keep", watched)
    session.prefill(text(9))
    for kept in (4, 2, 4):
        session.forward(TokenTree.chain(text(4)))
        session.commit(list(range(kept)))
    assert moved == [0, 0, 0, 2]


def test_a_session_closed_gives_its_memory_back(model: HubModel) -> None:
    session = model.open(64)
    session.prefill(text(32))
    cache = session._cache
    session.close()
    assert not cache.rows
    assert not cache._maps


def test_a_wide_pass_and_a_long_prompt(model: HubModel) -> None:
    words = text(200)
    whole, parts = model.open(200), model.open(200)
    scored = whole.forward(TokenTree.chain(words)).logits
    assert scored is not None
    expected = scored.copy()
    parts.prefill(words[:150])
    got = parts.forward(TokenTree.chain(words[150:])).logits
    assert got is not None
    np.testing.assert_allclose(got, expected[150:], rtol=0, atol=1e-4)
