"""Tests of save and load: another session continues the same text."""

from __future__ import annotations

import io

from edgedec.decoding.session import Model, Session
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CapacityExceeded, SnapshotError, StateError
from edgedec.testing._comparisons import Comparisons, expect


class Saving(Comparisons):
    """A saved state is loaded whole or not at all."""

    def test_saved_and_loaded_elsewhere(self, model: Model) -> None:
        tokens, more = self.text(model, 9, seed=30), self.text(model, 4, seed=31)
        session, other = model.open(64), model.open(48)
        session.prefill(tokens)
        if not model.capabilities.snapshot:
            message = "expected a session with snapshots, got one without: "
            expect(StateError, lambda: session.save(io.BytesIO()), message)
            expect(StateError, lambda: session.load(io.BytesIO()), message)
            return
        # Neither a pending tree nor earlier contents of the other session are part of the state.
        session.forward(TokenTree.chain(more))
        state = self.saved(session)
        other.prefill(more)
        other.forward(TokenTree(tokens[0]))
        other.load(io.BytesIO(state))
        other.prefill(more)
        self.check_next(model, other, tokens + more)
        session.commit([0, 1])
        self.check_next(model, session, tokens + more[:2])

    def test_an_empty_state(self, model: Model) -> None:
        if not model.capabilities.snapshot:
            return
        tokens = self.text(model, 5, seed=32)
        session = model.open(16)
        state = self.saved(session)
        session.prefill(self.text(model, 3, seed=33))
        session.load(io.BytesIO(state))
        assert session.length == 0
        session.prefill(tokens)
        self.check_next(model, session, tokens)

    def test_a_state_that_fills_the_session(self, model: Model) -> None:
        if not model.capabilities.snapshot:
            return
        tokens = self.text(model, 9, seed=37)
        full, other = model.open(9), model.open(9)
        full.prefill(tokens)
        state = self.saved(full)
        other.load(io.BytesIO(state))
        assert other.length == 9
        self.back(model, other, tokens, 8)
        self.check_next(model, other, tokens[:8])

    def test_a_damaged_state_changes_nothing(self, model: Model) -> None:
        if not model.capabilities.snapshot:
            return
        tokens = self.text(model, 7, seed=34)
        session = model.open(32)
        session.prefill(tokens)
        state = self.saved(session)
        flipped = bytearray(state)
        flipped[-1] ^= 1
        for bad in (b"", b"text", state[:20], state[:-1], bytes(flipped)):
            expect(SnapshotError, lambda bad=bad: session.load(io.BytesIO(bad)))  # type: ignore[misc]
        self.check_next(model, session, tokens)

    def test_a_state_that_is_too_long_changes_nothing(self, model: Model) -> None:
        if not model.capabilities.snapshot:
            return
        long, short = model.open(32), model.open(8)
        tokens = self.text(model, 5, seed=35)
        long.prefill(self.text(model, 9, seed=36))
        short.prefill(tokens)
        state = self.saved(long)
        try:
            short.load(io.BytesIO(state))
        except (CapacityExceeded, SnapshotError):
            pass
        else:
            raise AssertionError("a state of 9 tokens went into a session for 8")
        self.check_next(model, short, tokens)

    @staticmethod
    def saved(session: Session) -> bytes:
        """Return what ``save`` writes."""
        file = io.BytesIO()
        session.save(file)
        return file.getvalue()
