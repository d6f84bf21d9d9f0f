"""Several texts within one limit: a fake process whose sessions take memory as a runtime's do."""

from __future__ import annotations

import dataclasses
import weakref
from dataclasses import dataclass, field

import pytest

from edgedec.decoding.metrics import Metrics
from edgedec.decoding.session_pool import PooledSession, SessionPool
from edgedec.errors import MemoryBudgetError
from edgedec.loading.sessions import fitted
from edgedec.memory.account import ModelCosts
from edgedec.memory.guard import MemoryGuard
from edgedec.memory.kept import KeptSessions
from edgedec.memory.levels import Costs, Level
from edgedec.testing import FakeModel

MB = 1_000_000
BASE, OWN, KV, LEAST = 60 * MB, 5 * MB, 10_000, 256
TARGET = ModelCosts(20 * MB + OWN, KV, 4096, 12, rows=17, own=OWN, least=LEAST, scratch_each=True)
COSTS = Costs(TARGET, None, process=40 * MB, tokenizer=0, drafted=0, parallel=4, caches=4)


@dataclass
class Machine:
    """A process: its peak counts what a growing or copied cache takes meanwhile."""

    sessions: weakref.WeakSet[Session] = field(default_factory=weakref.WeakSet)
    others: int = 0
    peak: int = 0

    def held(self, more: int = 0) -> int:
        live = sum(one.bytes for one in self.sessions)
        self.peak = max(self.peak, BASE + self.others + live + more)
        return BASE + self.others + live


class Session:
    """A session whose cache is allocated at once, as llama.cpp's is."""

    def __init__(self, machine: Machine) -> None:
        self.inner = FakeModel(12).open(4096)
        self.machine, self.allocated, self.closed = machine, LEAST, False
        machine.sessions.add(self)
        machine.held()

    @property
    def bytes(self) -> int:
        return 0 if self.closed else OWN + KV * self.allocated

    @property
    def length(self) -> int:
        return self.inner.length

    @property
    def capacity(self) -> int:
        return 4096

    def rollback(self, length: int) -> None:
        self.inner.rollback(length)

    def reserve(self, tokens: int) -> None:
        if self.allocated < tokens:
            if self.length:  # both caches and the state between them
                self.machine.held(OWN + KV * (tokens + self.length))
            self.allocated = tokens
            self.machine.held()

    def trim(self) -> None:
        if not self.length:
            self.allocated = LEAST

    def fork(self, length: int) -> Session:
        other = Session(self.machine)
        if length:
            other.allocated = max(LEAST, self.length)
            self.machine.held(KV * self.length)
            other.inner.prefill([0] * length)
        return other

    def close(self) -> None:
        self.closed = True


class Server:
    """Texts by turns, begun and ended as an engine does."""

    def __init__(self, granted: int, costs: Costs = COSTS) -> None:
        self.machine = Machine()
        self.pool = SessionPool(Session(self.machine))  # type: ignore[arg-type]
        self.pool.limit = 4
        self.running: dict[int, tuple[PooledSession, int]] = {}
        self.guard = MemoryGuard(
            lambda: granted,
            costs,
            [Level("plain decoding", ())],
            lambda: self.pool.session,
            KeptSessions(self.pool, costs.target),
            read=self.machine.held,
        )

    def begin(self, name: int, context: int, shared: int = 0) -> None:
        longest, *beside = sorted(
            [context, *(one for _, one in self.running.values())], reverse=True
        )
        self.guard.begin(longest, Metrics(), sampled=False, beside=beside)
        kept = self.pool.acquire([1] * shared + [name % 9 + 2] * (context - shared))
        self.guard.take(kept, context)
        kept.session.inner.prefill([0] * (context - kept.session.length))  # type: ignore[attr-defined]
        self.running[name] = kept, context
        self.machine.held()

    def end(self, name: int) -> None:
        kept, context = self.running.pop(name)
        kept.release([1] * 0 + [name % 9 + 2] * context)


def needed(*contexts: int) -> int:
    longest, *beside = sorted(contexts, reverse=True)
    return COSTS.of(Level("plain decoding", ()), longest, sampled=False, beside=beside).total


def blind(costs: Costs) -> Costs:
    """A broken twin: the further sessions have no memory besides their caches."""
    return dataclasses.replace(
        costs, target=dataclasses.replace(costs.target, own=0, least=0, held=20 * MB + OWN)
    )


def many(server: Server) -> int:
    """Run texts of several lengths, each as soon as it fits; the number that ran at a time."""
    most, waiting = 0, [300, 900, 100, 500, 700, 200, 950, 150, 400, 600]
    for name, context in enumerate(waiting):
        while True:
            try:
                server.begin(name, context)
                break
            except MemoryBudgetError:
                assert server.running, "a text that fits alone is never refused"
                server.end(min(server.running))
        most = max(most, len(server.running))
        if len(server.running) == 4:
            server.end(min(server.running))
    return most


@pytest.mark.parametrize("granted", range(76 * MB, 130 * MB, 3 * MB + 1))
def test_the_limit_holds_whatever_runs_together(granted: int) -> None:
    server = Server(granted)
    most = many(server)
    assert server.machine.peak <= granted
    assert most >= 2 or granted < 90 * MB


def test_a_twin_that_forgets_what_a_session_takes_exceeds_the_limit() -> None:
    over = []
    for granted in range(76 * MB, 130 * MB, 3 * MB + 1):
        server = Server(granted, blind(COSTS))
        many(server)
        over.append(server.machine.peak > granted)
    assert any(over)


def test_each_text_is_counted_with_its_own_length() -> None:
    assert needed(900, 100) == needed(900) + OWN + KV * LEAST + 160 * 100
    assert needed(900, 500) - needed(900) < needed(900, 900) - needed(900)


def test_an_idle_conversation_gives_way_to_a_text_that_needs_its_memory() -> None:
    server = Server(needed(300, 300, 300))
    for name in range(3):
        server.begin(name, 300)
    for name in range(3):
        server.end(name)
    assert len(server.pool) == 3
    server.begin(7, 900)
    assert len(server.pool) < 3
    assert server.machine.peak <= needed(300, 300, 300)


def test_the_last_session_is_emptied_where_it_is_larger_than_the_text_may_be() -> None:
    server = Server(needed(900))
    server.begin(0, 900)
    server.end(0)
    server.machine.others = 4 * MB  # something else grew
    server.begin(1, 300)
    assert server.machine.held() <= needed(900)
    assert server.pool.session.allocated <= 301  # type: ignore[attr-defined]


def test_a_text_that_does_not_fit_beside_another_fits_after_it() -> None:
    server = Server(needed(900) + 2 * MB)
    server.begin(0, 900)
    with pytest.raises(MemoryBudgetError):
        server.begin(1, 900)
    server.end(0)
    server.begin(1, 900)
    assert server.machine.peak <= needed(900) + 2 * MB


def test_a_prefix_is_copied_only_where_memory_holds_the_copy_meanwhile() -> None:
    lengths = []
    for spare in (0, 40 * MB):
        server = Server(needed(600, 600) + spare)
        server.begin(0, 600)
        kept, _ = server.running[0]
        assert kept.busy
        kept.tokens = [1] * 599
        server.begin(1, 600, shared=500)
        lengths.append(server.pool.most_copied)
        assert server.machine.peak <= needed(600, 600) + spare
    assert lengths[0] is not None
    assert lengths[1] is not None
    assert lengths[0] < 600 <= lengths[1]


def test_where_not_all_texts_fit_at_once_the_context_is_for_fewer() -> None:
    def context(granted: int) -> int:
        return fitted(COSTS, "none", granted, 4096, None)

    assert context(300 * MB) == 4096 or context(300 * MB) > 3000
    # Alone it would hold more than what four at once have.
    small = context(85 * MB)
    assert small >= 512
    assert needed(small) <= 85 * MB < needed(*[small] * 4)


def test_a_text_leaves_what_those_of_another_model_may_yet_take() -> None:
    """Two models of one process; the control knows nothing of the other's texts."""

    def begun(*, together: bool) -> tuple[Server, Server, int]:
        one, other = Server(needed(1000)), Server(needed(1000))
        other.machine = one.machine
        guards = [one.guard, other.guard] if together else []
        for guard in guards:
            guard.join()
        one.guard.begin(900, Metrics(), sampled=False)
        kept = one.pool.acquire([1] * 900)
        one.guard.take(kept, 900)  # allocated, and not filled yet
        try:
            other.guard.begin(900, Metrics(), sampled=False)
            return one, other, 0
        finally:
            for guard in guards:
                guard.leave()

    begun(together=False)  # the control: it begins
    with pytest.raises(MemoryBudgetError):
        begun(together=True)


def test_what_is_filled_is_not_counted_twice_and_what_has_ended_not_at_all() -> None:
    server = Server(needed(1000))
    server.guard.begin(900, Metrics(), sampled=False)
    kept = server.pool.acquire([1] * 900)
    server.guard.take(kept, 900)
    most = server.guard.coming
    assert most > 900 * KV - 20 * KV
    kept.session.inner.prefill([0] * 400)  # type: ignore[attr-defined]
    assert server.guard.coming == most - 400 * KV
    kept.release([1] * 400)
    assert server.guard.coming == 0
