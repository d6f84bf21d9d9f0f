"""Tests of threads: a session interrupted from another thread, and two computing at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from edgedec.decoding.session import Model, Phase, Session, StreamedSession
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import Interrupted
from edgedec.testing._comparisons import Comparisons

_ROUNDS = 12
_SECONDS = 60.0


class Threads(Comparisons):
    """Guarantees that a scheduler with two threads needs."""

    def test_interrupted_from_another_thread(self, model: Model) -> None:
        tokens, chain = self.text(model, 6), TokenTree.chain(self.text(model, 3, seed=31))
        session = model.open(64)
        session.prefill(tokens)
        passes = threading.Event()
        interrupted: list[int] = []

        def compute() -> None:
            try:
                while True:
                    session.forward(chain)
                    session.rollback(len(tokens))
                    passes.set()
            except Interrupted:
                interrupted.append(session.length)

        thread = threading.Thread(target=compute)
        thread.start()
        assert passes.wait(_SECONDS), "no pass has ended"
        session.interrupt()
        thread.join(_SECONDS)
        assert interrupted == [len(tokens)], "the pass went on"
        self.check_tree(model, self.logits(session, chain), tokens, chain)
        session.commit([0])
        self.check_next(model, session, tokens + chain.tokens[:1])

    def test_two_sessions_compute_at_once(self, model: Model) -> None:
        def rounds(seed: int) -> list[FloatArray]:
            words = self.text(model, 3 * _ROUNDS, seed)
            session = model.open(64)
            session.prefill(words[:3])
            rows = []
            for turn in range(1, _ROUNDS):
                rows.append(self.logits(session, TokenTree.chain(words[3 * turn : 3 * turn + 3])))
                session.commit([0, 1])
            session.close()
            return rows

        alone = [rounds(32), rounds(33)]
        together: list[list[FloatArray]] = [[], []]

        def into(index: int) -> Callable[[], None]:
            return lambda: together[index].extend(rounds(32 + index))

        threads = [threading.Thread(target=into(index)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SECONDS)
        for expected, got in zip(alone, together, strict=True):
            np.testing.assert_allclose(np.array(got), np.array(expected), atol=self.tolerance)

    def test_phases_are_told_in_order(self, model: Model) -> None:
        session: Session = model.open(64)
        if not model.capabilities.phases:
            return
        assert isinstance(session, StreamedSession)
        phases_seen: list[Phase] = []
        session.watch(phases_seen.append)
        session.prefill(self.text(model, 5))
        read, phases_seen[:] = list(phases_seen), []
        session.forward(TokenTree(self.text(model, 1)[0]))
        for phases in (read, phases_seen):
            # One or more loads, each before the pass that needs it.
            assert phases[:1] == [Phase.LOAD]
            assert phases[-1:] == [Phase.COMPUTE]
            assert all(a is not b for a, b in pairwise(phases)), (
                "a phase was reported twice in a row"
            )
        session.watch(None)
        session.commit([0])
        count = len(phases_seen)
        session.forward(TokenTree(self.text(model, 1)[0]))
        assert len(phases_seen) == count, "a phase was reported though nobody watches"
