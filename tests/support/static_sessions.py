"""What sessions of fixed widths share in tests: twins broken on purpose, and the last slot."""

from __future__ import annotations

import numpy as np

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import IntArray, TokenTree
from edgedec.runtimes._static.executor import Array
from edgedec.runtimes._static.model import StaticShapeModel
from edgedec.runtimes._static.session import StaticShapeSession
from edgedec.runtimes.coreml.model import SliceSession


def twins(base: type[StaticShapeSession]) -> dict[str, type[StaticShapeSession]]:
    """What can go wrong in either form."""

    class SeesEveryNode(base):  # type: ignore[misc, valid-type]
        def _visible(self, tree: TokenTree, start: int, stop: int) -> tuple[Array, IntArray]:
            visible, where = super()._visible(tree, start, stop)
            visible[:, self._pending_slots[:stop]] = True
            return visible, where

    class SeesWhatWasDropped(base):  # type: ignore[misc, valid-type]
        def _cut(self, length: int) -> None:
            pass

    class CountsNodesForPositions(base):  # type: ignore[misc, valid-type]
        def _pass(self, tree: TokenTree, *rest: object) -> dict[str, Array]:
            other = TokenTree(tree.tokens[0])
            for node in range(1, len(tree)):
                other.add(tree.tokens[node], tree.parents[node])
            other.depths = list(range(len(tree)))
            return super()._pass(other, *rest)

    class ForksAnEmptyCache(base):  # type: ignore[misc, valid-type]
        def _copy(self, length: int) -> StaticShapeSession:
            other = super()._copy(length)
            other._cache = self._executor.new_state()
            return other

    class RanksAsGiven(base):  # type: ignore[misc, valid-type]
        def _ranked(self, start: int, logits: Array, ids: Array) -> Pass:
            return Pass(start, ids[:, ::-1].astype(np.int64), logits[:, ::-1], None)

    found = (SeesEveryNode, CountsNodesForPositions, ForksAnEmptyCache, RanksAsGiven)
    more = () if base is SliceSession else (SeesWhatWasDropped,)
    return {twin.__name__: twin for twin in (*found, *more)}


TESTS = {
    "SeesEveryNode": "test_a_tree_scores_every_path",
    "SeesWhatWasDropped": "test_rollback_and_continue",
    "CountsNodesForPositions": "test_a_tree_scores_every_path",
    "ForksAnEmptyCache": "test_forks_part_ways",
    "RanksAsGiven": "test_top_agrees_with_logits",
}


def check_last_slot(model: StaticShapeModel) -> None:
    """Tokens up to the last slot of a cache of 256 score alike, however they are cut."""
    # Near the end of the cache no wide pass fits: rows of padding must not reach beyond it.
    tokens = np.random.default_rng(0).integers(0, 96, 256).tolist()
    whole, parts = model.open(256), model.open(256)
    whole.prefill(tokens[:250])
    expected = whole.forward(TokenTree.chain(tokens[250:]), want=Want.LOGITS)
    assert expected.logits is not None
    parts.prefill(tokens[:253])
    got = parts.forward(TokenTree.chain(tokens[253:]), want=Want.LOGITS)
    assert got.logits is not None
    np.testing.assert_allclose(got.logits, expected.logits[3:], atol=1e-4)
