"""A random walk: after any sequence of calls a session holds exactly its text."""

from __future__ import annotations

import io

import numpy as np

from edgedec.decoding.session import Model
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.testing._comparisons import Comparisons


class Walking(Comparisons):
    """One test that makes every kind of call, in an order of its own."""

    def test_a_random_walk(self, model: Model) -> None:
        self.walk(model, seed=0)

    def walk(self, model: Model, seed: int, capacity: int = 64, steps: int = 20) -> None:
        """Call a session at random and compare its rows with those of fresh sessions."""
        Walk(self, model, seed, capacity).run(steps)


class Walk:
    """A session, the tokens it must hold, and a random generator that chooses the calls."""

    def __init__(self, contract: Comparisons, model: Model, seed: int, capacity: int) -> None:
        self._contract = contract
        self._model = model
        self._capacity = capacity
        self._rng = np.random.default_rng(seed)
        self._session = model.open(capacity)
        self._held: list[int] = []

    def run(self, steps: int) -> None:
        """Make ``steps`` random calls, each kind of them at least once, and compare the end."""
        kinds = [self._prefill, self._rollback, self._fork, self._save, *[self._draft] * 4]
        more = self._rng.integers(0, len(kinds), max(0, steps - len(kinds)))
        for kind in [*kinds, *(kinds[index] for index in more)]:
            if len(self._held) > self._capacity - 40:
                self._rollback()
            kind()
            assert self._session.length == len(self._held)
        self._contract.check_next(self._model, self._session, self._held)
        self._session.close()

    def _fresh(self, tokens: list[int]) -> FloatArray:
        """Return the logits after ``tokens`` from a fresh session, which prefills all but one."""
        session = self._model.open(len(tokens))
        session.prefill(tokens[:-1])
        logits: FloatArray = self._contract.logits(session, TokenTree(tokens[-1]))[0]
        session.close()
        return logits

    def _tokens(self, count: int) -> list[int]:
        found = self._rng.integers(0, self._model.info.vocab_size, count)
        return [int(token) for token in found]

    def _prefill(self) -> None:
        tokens = self._tokens(int(self._rng.integers(1, 20)))
        self._session.prefill(tokens)
        self._held += tokens

    def _draft(self) -> None:
        """Score a tree that grows by up to three passes, and commit a part of one path."""
        tree, start = TokenTree(self._tokens(1)[0]), 0
        rows: list[FloatArray] = []
        for _ in range(int(self._rng.integers(1, 4))):
            self._grow(tree, int(self._rng.integers(start > 0, 7)))
            rows.append(self._contract.logits(self._session, tree, start))
            start = len(tree)
        for node in {0, int(self._rng.integers(0, start)), start - 1}:
            text = self._held + tree.tokens_on(tree.path_to(node))
            self._contract.same(np.concatenate(rows)[node], self._fresh(text))
        if self._rng.random() < 0.3:
            self._grow(tree, 1)  # added, but never computed
        if self._rng.random() < 0.2:
            self._session.rollback(len(self._held))
            return
        path = tree.path_to(int(self._rng.integers(0, start)))
        if self._rng.random() < 0.3:
            path = path[: int(self._rng.integers(0, len(path)))]
        self._session.commit(path)
        self._held += tree.tokens_on(path)

    def _grow(self, tree: TokenTree, count: int) -> None:
        """Add random nodes; a new branch only where the model verifies one more."""
        most = self._model.capabilities.branches
        for token in self._tokens(count):
            full = most is not None and tree.leaves >= most
            tree.add(token, len(tree) - 1 if full else int(self._rng.integers(0, len(tree))))

    def _rollback(self) -> None:
        length = int(self._rng.integers(0, len(self._held) + 1))
        self._contract.back(self._model, self._session, self._held, length)
        del self._held[length:]

    def _fork(self) -> None:
        length = int(self._rng.integers(0, len(self._held) + 1))
        other = self._contract.fork(self._model, self._session, self._held, length)
        self._session.close()
        self._session = other
        del self._held[length:]

    def _save(self) -> None:
        if not self._model.capabilities.snapshot:
            return
        state = io.BytesIO()
        self._session.save(state)
        self._session.close()
        self._session = self._model.open(self._capacity)
        self._session.prefill(self._tokens(3))
        self._session.load(io.BytesIO(state.getvalue()))
