"""The contract of a session, as tests any runtime inherits.

Every test compares with the plainest use of the same model: a fresh session, one token at a
time. Golden files hold a runtime to the truth; this holds it to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.decoding.session import Model, Session, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import CapacityExceeded, EdgedecError, Interrupted, StateError


def expect(kind: type[EdgedecError], call: Callable[[], object]) -> None:
    """``call()`` raises ``kind``, with a message in one line."""
    try:
        call()
    except kind as error:
        message = str(error)
        assert message, "an error without a word"
        assert "\n" not in message, "more than one line"
        return
    raise AssertionError(f"expected {kind.__name__}")


def branching(tokens: Sequence[int]) -> TokenTree:
    """A root, two children, three grandchildren, one of them under the second child."""
    t = list(tokens)
    tree = TokenTree(t[0])
    left, right = tree.add(t[1], 0), tree.add(t[2], 0)
    tree.add(t[3], left)
    tree.add(t[4], right)
    tree.add(t[5], right)
    return tree


class SessionContract:
    """Inherit it and give a ``model`` fixture; set ``tolerance`` to the runtime's own."""

    tolerance = 1e-4

    # -- the plainest use, which all else is compared with ---------------------------------

    def row(self, model: Model, tokens: Sequence[int]) -> FloatArray:
        """Logits after ``tokens``, from a fresh session and one token a pass."""
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
        """Two rows agree within the runtime's tolerance."""
        np.testing.assert_allclose(got, expected, rtol=0, atol=self.tolerance)

    def check_next(self, model: Model, session: Session, tokens: Sequence[int]) -> None:
        """The session holds ``tokens`` exactly: what follows a probe is right."""
        assert session.length == len(tokens)
        probe = self.text(model, 1, seed=99)[0]
        self.same(self.logits(session, TokenTree(probe))[0], self.row(model, [*tokens, probe]))
        session.rollback(len(tokens))

    def check_tree(self, model: Model, got: FloatArray, tokens: list[int], tree: TokenTree) -> None:
        """Every node's row is the row of its own path."""
        for node in range(len(tree)):
            path = tree.tokens_on(tree.path_to(node))
            self.same(got[node], self.row(model, tokens + path))

    @staticmethod
    def logits(session: Session, tree: TokenTree, start: int = 0) -> FloatArray:
        """A copy of the logits of a pass, ``[rows, vocab]``."""
        scored = session.forward(tree, start)
        assert scored.logits is not None
        assert scored.start == start
        assert len(scored.logits) == len(tree) - start
        logits: FloatArray = scored.logits.copy()
        return logits

    @staticmethod
    def text(model: Model, count: int, seed: int = 1) -> list[int]:
        """Some tokens of the model's vocabulary."""
        rng = np.random.default_rng(seed)
        return [int(t) for t in rng.integers(0, model.info.vocab_size, count)]

    # -- reading ------------------------------------------------------------------------------

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
        np.testing.assert_array_equal(
            scored.top_logits, np.take_along_axis(scored.logits, order, axis=1)
        )
        ids = scored.top_ids.copy()
        session.rollback(5)
        np.testing.assert_array_equal(session.forward(chain, want=Want.TOP).top_ids, ids)

    # -- committing and going back ------------------------------------------------------------

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
        # An EOS or a token limit inside an accepted run: the rest never happened.
        tokens, chain = self.text(model, 5), TokenTree.chain(self.text(model, 5, seed=9))
        for kept in range(6):
            session = model.open(64)
            session.prefill(tokens)
            session.forward(chain)
            session.commit(list(range(kept)))
            self.check_next(model, session, tokens + chain.tokens[:kept])

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
        session.rollback(7)
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
        other = session.fork(5)
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

    # -- limits and misuse ----------------------------------------------------------------------

    def test_the_cache_can_be_filled_to_the_last_token(self, model: Model) -> None:
        tokens = self.text(model, 16)
        session = model.open(16)
        session.prefill(tokens[:12])
        self.logits(session, TokenTree.chain(tokens[12:]))
        session.commit([0, 1, 2, 3])
        assert session.length == session.capacity == 16
        expect(CapacityExceeded, lambda: session.forward(TokenTree(tokens[0])))
        session.rollback(15)
        self.same(self.logits(session, TokenTree(tokens[15]))[0], self.row(model, tokens))

    def test_too_much_changes_nothing(self, model: Model) -> None:
        tokens = self.text(model, 10)
        session = model.open(12)
        session.prefill(tokens)
        expect(CapacityExceeded, lambda: session.prefill(tokens))
        expect(CapacityExceeded, lambda: session.forward(TokenTree.chain(tokens[:3])))
        expect(CapacityExceeded, lambda: model.open(0))
        expect(CapacityExceeded, lambda: model.open(model.info.max_context + 1))
        self.check_next(model, session, tokens)

    def test_calls_out_of_order_change_nothing(self, model: Model) -> None:
        tokens, chain = self.text(model, 5), TokenTree.chain(self.text(model, 3, seed=18))
        session = model.open(64)
        session.prefill(tokens)
        expect(StateError, lambda: session.commit([0]))
        expect(StateError, lambda: session.forward(chain, 1))
        expect(StateError, lambda: session.rollback(-1))
        expect(StateError, lambda: session.rollback(6))
        expect(StateError, lambda: session.fork(6))
        session.forward(chain)
        expect(StateError, lambda: session.forward(chain))
        expect(StateError, lambda: session.forward(chain, 3))
        expect(StateError, lambda: session.prefill(tokens))
        expect(StateError, lambda: session.commit([1]))
        expect(StateError, lambda: session.commit([0, 2]))
        expect(StateError, lambda: session.commit([0, 1, 2, 3]))
        session.commit([0, 1])
        self.check_next(model, session, tokens + chain.tokens[:2])

    def test_tokens_outside_the_vocabulary_change_nothing(self, model: Model) -> None:
        tokens = self.text(model, 5)
        session = model.open(64)
        session.prefill(tokens)
        for bad in (-1, model.info.vocab_size):
            expect(StateError, lambda bad=bad: session.prefill([bad]))  # type: ignore[misc]
            expect(StateError, lambda bad=bad: session.forward(TokenTree(bad)))  # type: ignore[misc]
        self.check_next(model, session, tokens)

    def test_interrupted_and_used_again(self, model: Model) -> None:
        tokens, chain = self.text(model, 6), TokenTree.chain(self.text(model, 3, seed=19))
        session = model.open(64)
        session.prefill(tokens[:4])
        session.interrupt()
        expect(Interrupted, lambda: session.prefill(tokens[4:]))
        assert session.length == 4
        session.prefill(tokens[4:])
        session.interrupt()
        expect(Interrupted, lambda: session.forward(chain))
        self.check_tree(model, self.logits(session, chain), tokens, chain)
        session.commit([0])
        self.check_next(model, session, tokens + chain.tokens[:1])

    def test_prefill_stopped_by_its_listener(self, model: Model) -> None:
        tokens = self.text(model, 40)
        session = model.open(64)

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        try:
            session.prefill(tokens, stop)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the listener's exception was swallowed")
        assert 0 < session.length <= 40
        session.prefill(tokens[session.length :])
        self.check_next(model, session, tokens)

    def test_closed_is_closed(self, model: Model) -> None:
        session = model.open(8)
        session.close()
        session.close()
        expect(StateError, lambda: session.prefill([0]))
        expect(StateError, lambda: session.forward(TokenTree(0)))
