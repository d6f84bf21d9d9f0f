"""Tests of the residual streams that a model shows; of others, that it refuses to."""

from __future__ import annotations

import io

import numpy as np

from edgedec.decoding.session import Model, Session, Tapped, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import StateError
from edgedec.testing._comparisons import Comparisons, branching, expect

_WANTED = Want.TOP | Want.STATES


class States(Comparisons):
    """A token's states are those of its own text, however it was computed."""

    def test_states_are_refused_or_there(self, model: Model) -> None:
        session, tree = model.open(64), TokenTree(self.text(model, 1)[0])
        if not model.capabilities.taps:
            expect(StateError, lambda: session.forward(tree, want=_WANTED), "export it")
            if isinstance(session, Tapped):
                expect(StateError, lambda: session.tap(_ignored), "export it")
            return
        assert session.forward(tree, want=Want.LOGITS).states is None
        session.rollback(0)
        scored = session.forward(tree, want=_WANTED)
        assert scored.logits is None
        assert scored.states is not None
        assert scored.states.dtype == np.float32
        assert scored.states.shape[0] == 1
        assert scored.states.shape[1] % len(model.capabilities.taps) == 0
        assert np.isfinite(scored.states).all()

    def test_states_of_chains_and_trees(self, model: Model) -> None:
        if not model.capabilities.taps:
            return
        tokens, words = self.text(model, 9), self.text(model, 6, seed=4)
        trees = [TokenTree.chain(words)]
        trees += [branching(words)] if model.capabilities.tree else []
        for held in (tokens, []):
            for tree in trees:
                session = model.open(64)
                session.prefill(held)
                self.check_states(model, self.states(session, tree), held, tree)

    def test_states_of_a_tree_that_grows(self, model: Model) -> None:
        if not model.capabilities.taps:
            return
        tokens, words = self.text(model, 7), self.text(model, 5, seed=6)
        session, tree = model.open(64), TokenTree.chain(words[:2])
        session.prefill(tokens)
        rows = [self.states(session, tree)]
        for token in words[2:]:
            tree.add(token, len(tree) - 1)
        rows.append(self.states(session, tree, 2))
        self.check_states(model, np.concatenate(rows), tokens, tree)

    def test_states_of_a_prompt(self, model: Model) -> None:
        if not model.capabilities.taps:
            return
        tokens, session = self.text(model, 21), model.open(64)
        assert isinstance(session, Tapped)
        found: list[tuple[int, FloatArray]] = []
        session.prefill(tokens[:2])
        session.tap(lambda at, states: found.append((at, states.copy())))
        session.prefill(tokens[2:15])
        session.prefill(tokens[15:20])
        session.tap(None)
        session.prefill(tokens[20:])
        ends = np.cumsum([len(states) for _, states in found]) + 2
        assert [at for at, _ in found] == [2, *ends[:-1]]
        assert ends[-1] == 20
        chain = TokenTree.chain(tokens[2:20])
        joined = np.concatenate([states for _, states in found])
        self.check_states(model, joined, tokens[:2], chain)
        self.check_next(model, session, tokens)

    def test_states_after_going_back(self, model: Model) -> None:
        if not model.capabilities.taps:
            return
        tokens, words = self.text(model, 12), self.text(model, 4, seed=9)
        session, chain = model.open(64), TokenTree.chain(words)
        session.prefill(tokens)
        session.forward(chain, want=_WANTED)
        session.commit([0, 1])
        self.back(model, session, tokens, 7)
        self.check_states(model, self.states(session, chain), tokens[:7], chain)
        session.rollback(7)
        fork = self.fork(model, session, tokens, 5)
        self.check_states(model, self.states(fork, chain), tokens[:5], chain)
        if model.capabilities.snapshot:
            file, other = io.BytesIO(), model.open(64)
            session.save(file)
            file.seek(0)
            other.load(file)
            self.check_states(model, self.states(other, chain), tokens[:7], chain)

    def check_states(
        self, model: Model, got: FloatArray, tokens: list[int], tree: TokenTree
    ) -> None:
        """Assert that every node has the states of its own path, read token by token."""
        assert len(got) == len(tree)
        for node in range(len(tree)):
            fresh, text = model.open(64), tokens + tree.tokens_on(tree.path_to(node))
            for token in text:
                expected = self.states(fresh, TokenTree(token))
                fresh.commit([0])
            self.same(got[node], expected[0])
            fresh.close()

    @staticmethod
    def states(session: Session, tree: TokenTree, start: int = 0) -> FloatArray:
        """Return a copy of a pass's states, ``[rows, taps * hidden]``."""
        scored = session.forward(tree, start, _WANTED)
        assert scored.states is not None
        states: FloatArray = scored.states.copy()
        return states


def _ignored(at: int, states: FloatArray) -> None:
    """Do nothing with them."""
