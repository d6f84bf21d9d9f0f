"""Limits, wrong calls and interruptions: each leaves the session usable."""

from __future__ import annotations

from edgedec.decoding.session import Model
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CapacityExceeded, Interrupted, StateError
from edgedec.testing._comparisons import Comparisons, expect

# Branches of a tree for sessions that set no limit: more than any limit that is known.
_MANY = 70


class Misuse(Comparisons):
    """What must be refused, and what must survive it."""

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

    def test_more_branches_than_it_verifies_change_nothing(self, model: Model) -> None:
        tokens, most = self.text(model, 5), model.capabilities.branches
        width = _MANY if most is None else most
        words = self.text(model, width + 2, seed=22)
        tree = TokenTree(words[0])
        for word in words[1 : width + 1]:
            tree.add(word, 0)
        session = model.open(width + 8)
        session.prefill(tokens)
        got = self.logits(session, tree)
        for node in (0, 1, width // 2, width):
            self.same(got[node], self.row(model, tokens + tree.tokens_on(tree.path_to(node))))
        tree.add(words[-1], 0)
        if most is None:
            self.logits(session, tree, width + 1)
        else:
            told = expect(StateError, lambda: session.forward(tree, width + 1))
            assert most == 1 or str(most) in told, "the limit is not named"
            expect(StateError, lambda: session.commit([0, width + 1]))  # it was not computed
            session.commit([0])
            tokens.append(words[0])
            expect(StateError, lambda: session.forward(tree))
            assert session.length == len(tokens)
        session.rollback(len(tokens))
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
