"""Tests of prefill and forward: which logits a pass computes."""

from __future__ import annotations

import numpy as np

from edgedec.decoding.session import Model, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError
from edgedec.testing._comparisons import Comparisons, branching, expect


class Prefill(Comparisons):
    """Prefill, chains, trees, and trees that grow."""

    def test_prefill_is_the_same_as_token_by_token(self, model: Model) -> None:
        tokens = self.text(model, 13)
        session = model.open(64)
        done: list[tuple[int, int]] = []
        session.prefill(tokens, lambda n, total: done.append((n, total)))
        assert done[-1] == (13, 13)
        self.check_next(model, session, tokens)

    def test_prefill_continues_where_the_cache_ends(self, model: Model) -> None:
        tokens = self.text(model, 21)
        session = model.open(64)
        session.prefill(tokens[:8])
        session.prefill(tokens[8:9])
        session.prefill(tokens[9:])
        session.prefill([])
        self.check_next(model, session, tokens)

    def test_a_chain_scores_every_token(self, model: Model) -> None:
        tokens, chain = self.text(model, 9), TokenTree.chain(self.text(model, 5, seed=2))
        session = model.open(64)
        session.prefill(tokens)
        self.check_tree(model, self.logits(session, chain), tokens, chain)

    def test_draft_length_one(self, model: Model) -> None:
        tokens, chain = self.text(model, 6), TokenTree.chain(self.text(model, 2, seed=3))
        session = model.open(64)
        session.prefill(tokens)
        self.check_tree(model, self.logits(session, chain), tokens, chain)
        session.commit([0])
        self.check_next(model, session, tokens + chain.tokens[:1])

    def test_a_tree_scores_every_path(self, model: Model) -> None:
        if not model.capabilities.tree:
            session = model.open(64)
            session.prefill(self.text(model, 4))
            expect(StateError, lambda: session.forward(branching(self.text(model, 6))))
            return
        tokens, tree = self.text(model, 9), branching(self.text(model, 6, seed=4))
        session = model.open(64)
        session.prefill(tokens)
        self.check_tree(model, self.logits(session, tree), tokens, tree)

    def test_a_tree_right_after_a_one_token_prompt(self, model: Model) -> None:
        words = self.text(model, 6, seed=5)
        tree = branching(words) if model.capabilities.tree else TokenTree.chain(words)
        session = model.open(64)
        self.check_tree(model, self.logits(session, tree), [], tree)
        path = tree.path_to(len(tree) - 1)
        session.commit(path)
        self.check_next(model, session, tree.tokens_on(path))

    def test_a_pending_tree_grows(self, model: Model) -> None:
        tokens, words = self.text(model, 7), self.text(model, 5, seed=6)
        session = model.open(64)
        session.prefill(tokens)
        tree = TokenTree(words[0])
        rows = [self.logits(session, tree)]
        for step, token in enumerate(words[1:], 1):
            tree.add(token, step - 1)
            rows.append(self.logits(session, tree, step))
        self.check_tree(model, np.concatenate(rows), tokens, tree)
        session.commit([0, 1, 2])
        self.check_next(model, session, tokens + words[:3])

    def test_a_pending_tree_grows_branches(self, model: Model) -> None:
        if not model.capabilities.tree:
            return
        tokens, words = self.text(model, 7), self.text(model, 7, seed=7)
        session = model.open(64)
        session.prefill(tokens)
        tree = TokenTree(words[0])
        rows = [self.logits(session, tree)]
        left, right = tree.add(words[1], 0), tree.add(words[2], 0)
        rows.append(self.logits(session, tree, 1))
        for token, parent in ((words[3], right), (words[4], left), (words[5], right)):
            tree.add(token, parent)
        rows.append(self.logits(session, tree, 3))
        self.check_tree(model, np.concatenate(rows), tokens, tree)
        session.commit(tree.path_to(5))
        self.check_next(model, session, [*tokens, words[0], words[2], words[5]])

    def test_top_agrees_with_logits(self, model: Model) -> None:
        chain = TokenTree.chain(self.text(model, 3))
        session = model.open(64)
        session.prefill(self.text(model, 5))
        scored = session.forward(chain, want=Want.TOP | Want.LOGITS)
        assert scored.logits is not None
        k = model.capabilities.top_k
        assert scored.top_ids.shape == scored.top_logits.shape == (3, k)
        order = np.argsort(-scored.logits, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(scored.top_ids, order)
        assert scored.first() == (order[:, 0].tolist(), scored.top_logits[:, 0].tolist())
        np.testing.assert_array_equal(
            scored.top_logits, np.take_along_axis(scored.logits, order, axis=1)
        )
        ids = scored.top_ids.copy()
        session.rollback(5)
        np.testing.assert_array_equal(session.forward(chain, want=Want.TOP).top_ids, ids)
