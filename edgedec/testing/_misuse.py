"""Tests of limits, wrong calls and interruptions, all of which leave the session usable."""

from __future__ import annotations

import io
from collections.abc import Callable

from edgedec.decoding.session import Model
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CapacityExceeded, Interrupted, StateError
from edgedec.testing._comparisons import Comparisons, expect

# Branches of a tree for sessions without a limit: more than any known limit.
_MANY = 70


class Misuse(Comparisons):
    """Calls that must be refused, with a message that says what was expected."""

    def test_the_cache_can_be_filled_to_the_last_token(self, model: Model) -> None:
        tokens = self.text(model, 16)
        session = model.open(16)
        session.prefill(tokens[:12])
        self.logits(session, TokenTree.chain(tokens[12:]))
        session.commit([0, 1, 2, 3])
        assert session.length == session.capacity == 16
        full = "expected at most 0 tokens after the 16 committed ones, got 1: open a session for"
        expect(CapacityExceeded, lambda: session.forward(TokenTree(tokens[0])), full)
        session.rollback(15)
        self.same(self.logits(session, TokenTree(tokens[15]))[0], self.row(model, tokens))

    def test_too_much_changes_nothing(self, model: Model) -> None:
        tokens = self.text(model, 10)
        session = model.open(12)
        session.prefill(tokens)
        room = "expected at most 2 tokens after the 10 committed ones, got"
        expect(CapacityExceeded, lambda: session.prefill(tokens), f"{room} 10: ")
        expect(CapacityExceeded, lambda: session.forward(TokenTree.chain(tokens[:3])), f"{room} 3:")
        most = model.info.max_context
        for capacity in (0, most + 1):
            message = f"expected a capacity of 1..{most} tokens, got {capacity}: "
            expect(CapacityExceeded, lambda c=capacity: model.open(c), message)  # type: ignore[misc]
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
            limit = "a chain" if most == 1 else f"at most {most} branches"
            message = f"expected {limit}, got a tree of {most + 1}"
            expect(StateError, lambda: session.forward(tree, width + 1), message)
            expect(StateError, lambda: session.commit([0, width + 1]))  # not computed
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

        def refused(call: Callable[[], object], expected: str) -> None:
            expect(StateError, call, f"expected {expected}: ")

        refused(lambda: session.commit([0]), "a pending tree, got none")
        refused(lambda: session.forward(chain, 1), "start=0, the number of pending nodes, got 1")
        refused(lambda: session.rollback(-1), "a length of 0..5, got -1")
        refused(lambda: session.rollback(6), "a length of 0..5, got 6")
        refused(lambda: session.fork(6), "a length of 0..5, got 6")
        session.forward(chain)
        refused(lambda: session.forward(chain), "start=3, the number of pending nodes, got 0")
        more = "more than the 3 nodes that are pending, got a tree of 3"
        refused(lambda: session.forward(chain, 3), more)
        refused(lambda: session.prefill(tokens), "no pending tree, got one of 3 nodes")
        for wrong in ([1], [0, 2], [0, 1, 2, 3]):
            path = f"a path from the root of the 3 pending nodes, got {wrong}"
            refused(lambda wrong=wrong: session.commit(wrong), path)  # type: ignore[misc]
        session.commit([0, 1])
        self.check_next(model, session, tokens + chain.tokens[:2])

    def test_tokens_outside_the_vocabulary_change_nothing(self, model: Model) -> None:
        tokens = self.text(model, 5)
        session = model.open(64)
        session.prefill(tokens)
        last = model.info.vocab_size - 1
        for bad in (-1, last + 1):
            message = f"expected token ids 0..{last}, got {bad}: "
            expect(StateError, lambda bad=bad: session.prefill([bad]), message)  # type: ignore[misc]
            tree = TokenTree(bad)
            expect(StateError, lambda tree=tree: session.forward(tree), message)  # type: ignore[misc]
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
        session.forward(TokenTree(0))
        session.close()
        session.close()
        for call in (
            lambda: session.prefill([0]),
            lambda: session.forward(TokenTree(0)),
            lambda: session.commit([0]),
            lambda: session.rollback(0),
            lambda: session.fork(0),
            lambda: session.save(io.BytesIO()),
            lambda: session.load(io.BytesIO()),
        ):
            expect(StateError, call, "the session is closed: open a new one")
