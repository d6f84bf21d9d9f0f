"""Measures the memory of the models while they are loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from edgedec.decoding.session import Capabilities, Model, Session, Want
from edgedec.decoding.session_abilities import HeadModel, Rehearsing, Reserving, Tapped
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import TokenTree
from edgedec.hardware.resident import resident_bytes, unread_bytes
from edgedec.memory.account import FLOAT_BYTES, ModelCosts


class Meter:
    """Measures how much memory the process gained in each loading step, by name.

    Args:
        counting: False measures nothing, since reading all mappings takes milliseconds.

    Attributes:
        process: resident bytes before the first step.

    """

    def __init__(self, *, counting: bool) -> None:
        self._counting = counting
        self.process = self._last = resident_bytes() if counting else 0
        self._mapped = unread_bytes() if counting else 0
        self._taken: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()

    def mark(self, name: str) -> None:
        """Add the memory gained since the last mark to a name."""
        if not self._counting:
            return
        now = resident_bytes()
        self._taken[name] += now - self._last
        self._last = now
        unread = unread_bytes()
        self._unread[name] += unread - self._mapped
        self._mapped = unread

    def taken(self, name: str) -> int:
        """Return the bytes counted for a name."""
        return max(0, self._taken[name])

    def unread(self, name: str) -> int:
        """Return the bytes of files mapped for a name that are not in memory yet."""
        return max(0, self._unread[name])


@contextmanager
def shown_states(session: Session, head: HeadModel | None) -> Iterator[None]:
    """Have a session show its states, as it does for a head, while its memory is measured."""
    if head is None or not isinstance(session, Tapped):
        yield
        return
    session.tap(lambda *_: None)
    try:
        yield
    finally:
        session.tap(None)


def costs_of_head(
    meter: Meter, head: HeadModel, capacity: int, rows: int, granted: int
) -> ModelCosts:
    """Measure a head after passes of a session of its own, with the states that wait for it."""
    session = head.open(capacity)
    try:
        found = costs_of(meter, "draft", head, session, rows, granted)
    finally:
        session.close()
    # A chunk's states, their copy, and what is made of them.
    return replace(found, held=found.held + 3 * PREFILL_CHUNK * head.state_bytes)


def costs_of(
    meter: Meter, role: str, model: Model | HeadModel, session: Session, rows: int, granted: int
) -> ModelCosts:
    """Measure a model after a pass of each kind that decoding runs."""
    affordable = max(0, granted - resident_bytes()) // max(1, model.info.kv_bytes_per_token)
    info, rows = model.info, min(rows, session.capacity // 2)
    if model.capabilities.row_widths is not None:
        rows = min(rows, model.capabilities.row_widths[-1])
    prefilled = min(PREFILL_CHUNK, session.capacity - rows)
    if isinstance(session, Rehearsing):
        session.rehearse(max(prefilled + rows, min(session.capacity, affordable)), rows)
        filled = 0
    else:
        session.prefill([0] * prefilled)
        scored = session.forward(_widest(rows, model.capabilities), want=Want.LOGITS)
        scored.first()  # some runtimes rank tokens on first use only
        session.rollback(0)
        filled = session.allocated if isinstance(session, Reserving) else prefilled + rows
    meter.mark(role)
    held = meter.taken(role) - filled * info.kv_bytes_per_token
    return ModelCosts(
        max(0, held),
        info.kv_bytes_per_token,
        session.capacity,
        info.vocab_size,
        info.scratch_bytes_per_token,
        rows,
        meter.unread(role),
        max(FLOAT_BYTES * rows * info.vocab_size, info.scratch_bytes_per_token * (prefilled + rows))
        if info.scratch_bytes_per_token
        else 0,
    )


def _widest(rows: int, capabilities: Capabilities) -> TokenTree:
    """Return a tree of this many nodes, which branches where a session verifies that."""
    tree = TokenTree(0)
    while len(tree) < rows:
        branches = capabilities.tree and len(tree) == rows // 2
        tree.add(1, 0 if branches else len(tree) - 1)
    return tree
