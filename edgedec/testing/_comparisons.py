"""The reference of the contract's tests: a fresh session that reads one token per pass.

Golden files compare a runtime with recorded logits; this compares it with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.decoding.prefill import go_back
from edgedec.decoding.session import Model, Rollback, Session
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CannotRollback, EdgedecError


def expect(kind: type[EdgedecError], call: Callable[[], object], *said: str) -> str:
    """Return the message of the ``kind`` raised by ``call()``: one line with each of ``said``."""
    try:
        call()
    except kind as error:
        message = str(error)
        assert message, "an error without a message"
        assert "\n" not in message, "more than one line"
        for words in said:
            assert words in message, f"expected {words!r} in the message, got {message!r}"
        return message
    raise AssertionError(f"expected {kind.__name__}")


def branching(tokens: Sequence[int]) -> TokenTree:
    """Return a root, two children and three grandchildren, one of them below the second child."""
    t = list(tokens)
    tree = TokenTree(t[0])
    left, right = tree.add(t[1], 0), tree.add(t[2], 0)
    tree.add(t[3], left)
    tree.add(t[4], right)
    tree.add(t[5], right)
    return tree


class Comparisons:
    """Helpers of the tests; ``tolerance`` is the largest difference of two rows."""

    tolerance = 1e-4

    def row(self, model: Model, tokens: Sequence[int]) -> FloatArray:
        """Return the logits after ``tokens``, from a fresh session and one token per pass."""
        session = model.open(len(tokens))
        try:
            for token in tokens:
                scored = session.forward(TokenTree(token))
                assert scored.logits is not None
                logits: FloatArray = scored.logits[0].copy()
                session.commit([0])
            return logits
        finally:
            session.close()

    def same(self, got: FloatArray, expected: FloatArray) -> None:
        """Assert that two rows agree within the runtime's tolerance."""
        np.testing.assert_allclose(got, expected, rtol=0, atol=self.tolerance)

    def back(self, model: Model, session: Session, tokens: Sequence[int], length: int) -> None:
        """Go back to ``tokens[:length]``, and read on where the session names a nearer length."""
        near = go_back(session, length)
        assert near == length or model.capabilities.rollback is not Rollback.ANY
        session.prefill(tokens[near:length])

    def fork(self, model: Model, session: Session, tokens: Sequence[int], length: int) -> Session:
        """Return a fork that holds ``tokens[:length]``, as ``back``."""
        near = length
        try:
            return session.fork(length)
        except CannotRollback as error:
            near = error.nearest
        assert near < length
        assert model.capabilities.rollback is not Rollback.ANY
        other = session.fork(near)
        other.prefill(tokens[near:length])
        return other

    def check_next(self, model: Model, session: Session, tokens: Sequence[int]) -> None:
        """Assert that the session holds exactly ``tokens``, by the logits after a probe token."""
        assert session.length == len(tokens)
        probe = self.text(model, 1, seed=99)[0]
        self.same(self.logits(session, TokenTree(probe))[0], self.row(model, [*tokens, probe]))
        session.rollback(len(tokens))

    def check_tree(self, model: Model, got: FloatArray, tokens: list[int], tree: TokenTree) -> None:
        """Assert that every node has the logits of its own path."""
        for node in range(len(tree)):
            path = tree.tokens_on(tree.path_to(node))
            self.same(got[node], self.row(model, tokens + path))

    @staticmethod
    def logits(session: Session, tree: TokenTree, start: int = 0) -> FloatArray:
        """Return a copy of a pass's logits, ``[rows, vocab]``."""
        scored = session.forward(tree, start)
        assert scored.logits is not None
        assert scored.start == start
        assert len(scored.logits) == len(tree) - start
        logits: FloatArray = scored.logits.copy()
        return logits

    @staticmethod
    def text(model: Model, count: int, seed: int = 1) -> list[int]:
        """Return random tokens of the model's vocabulary."""
        rng = np.random.default_rng(seed)
        return [int(t) for t in rng.integers(0, model.info.vocab_size, count)]
