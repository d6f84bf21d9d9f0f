"""Tests of commit, rollback and fork: which rows stay in the cache."""

from __future__ import annotations

import numpy as np

from edgedec.decoding.session import Model
from edgedec.decoding.tree import TokenTree
from edgedec.testing._comparisons import Comparisons, branching


class Committing(Comparisons):
    """Commit, rollback, fork, and sessions side by side."""

    def test_commit_keeps_one_branch(self, model: Model) -> None:
        if not model.capabilities.tree:
            return
        tokens, tree = self.text(model, 9), branching(self.text(model, 6, seed=8))
        for leaf in range(len(tree)):
            session = model.open(64)
            session.prefill(tokens)
            session.forward(tree)
            path = tree.path_to(leaf)
            session.commit(path)
            self.check_next(model, session, tokens + tree.tokens_on(path))

    def test_commit_of_part_of_a_path(self, model: Model) -> None:
        # An EOS or a token limit inside an accepted run discards the rest.
        tokens, chain = self.text(model, 5), TokenTree.chain(self.text(model, 5, seed=9))
        for kept in range(6):
            session = model.open(64)
            session.prefill(tokens)
            session.forward(chain)
            session.commit(list(range(kept)))
            self.check_next(model, session, tokens + chain.tokens[:kept])

    def test_commit_of_a_tree_that_grew_since(self, model: Model) -> None:
        # A drafter adds its last nodes without a pass over them.
        tokens, words = self.text(model, 6), self.text(model, 4, seed=21)
        session = model.open(64)
        session.prefill(tokens)
        tree = TokenTree.chain(words[:3])
        session.forward(tree)
        tree.add(words[3], 0 if model.capabilities.tree else 2)
        session.commit([0, 1])
        self.check_next(model, session, tokens + words[:2])

    def test_rounds_follow_one_another(self, model: Model) -> None:
        rng = np.random.default_rng(10)
        held = self.text(model, 3)
        session = model.open(200)
        session.prefill(held)
        for turn in range(8):
            words = self.text(model, 6, seed=20 + turn)
            tree = branching(words) if model.capabilities.tree else TokenTree.chain(words)
            self.logits(session, tree)
            path = tree.path_to(int(rng.integers(0, len(tree))))
            session.commit(path)
            held += tree.tokens_on(path)
            if turn % 3 == 2:
                session.rollback(session.length - 2)
                del held[-2:]
        self.check_next(model, session, held)

    def test_rollback_and_continue(self, model: Model) -> None:
        tokens, other = self.text(model, 12), self.text(model, 5, seed=11)
        session = model.open(64)
        session.prefill(tokens)
        self.back(model, session, tokens, 7)
        session.prefill(other)
        self.check_next(model, session, tokens[:7] + other)

    def test_rollback_to_zero_and_prefill_again(self, model: Model) -> None:
        session = model.open(64)
        session.prefill(self.text(model, 12))
        session.forward(TokenTree.chain(self.text(model, 3)))
        session.rollback(0)
        assert session.length == 0
        tokens = self.text(model, 9, seed=12)
        session.prefill(tokens)
        self.check_next(model, session, tokens)

    def test_rollback_drops_a_pending_tree(self, model: Model) -> None:
        tokens = self.text(model, 6)
        session = model.open(64)
        session.prefill(tokens)
        session.forward(TokenTree.chain(self.text(model, 4, seed=13)))
        session.rollback(6)
        self.check_next(model, session, tokens)

    def test_forks_part_ways(self, model: Model) -> None:
        tokens, one, two = self.text(model, 8), self.text(model, 4, 14), self.text(model, 4, 15)
        session = model.open(64)
        session.prefill(tokens)
        other = self.fork(model, session, tokens, 5)
        session.prefill(one)
        other.prefill(two)
        self.check_next(model, session, tokens + one)
        self.check_next(model, other, tokens[:5] + two)

    def test_two_sessions_of_one_model(self, model: Model) -> None:
        one, two = self.text(model, 8, 16), self.text(model, 6, 17)
        first, second = model.open(64), model.open(32)
        first.prefill(one[:4])
        second.prefill(two)
        tree = TokenTree.chain(one[4:])
        got = self.logits(first, tree)
        self.check_next(model, second, two)
        self.check_tree(model, got, one[:4], tree)
