"""The guard: what it gives up and when, what comes back, and when it refuses. No model."""

import dataclasses
import re
from collections.abc import Iterator

import pytest

from edgedec.decoding.drafting.base import DraftLimits, DraftStep, Offer
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.errors import MemoryBudgetError
from edgedec.hardware.machine import Memory
from edgedec.loading.sessions import fitted
from edgedec.memory.account import ModelCosts
from edgedec.memory.grant import granting
from edgedec.memory.guard import EVERY, MemoryGuard, Restrained
from edgedec.memory.levels import TOKENISING_BYTES, Costs, Level
from edgedec.testing import FakeModel

MB = 1_000_000
COSTS = Costs(
    ModelCosts(10 * MB, 10_000, 4096, 12, rows=17),
    ModelCosts(5 * MB, 5_000, 4096, 12, rows=17),
    process=20 * MB,
    tokenizer=0,
    drafted=16,
)
CONTEXT = 1000


class Process:
    """A process whose memory a test sets, and which loses some where a level gives it back."""

    def __init__(self, held: int) -> None:
        self.held, self.given_back = held, []

    def read(self) -> int:
        return self.held

    def levels(self, back: int = 0) -> list[Level]:
        def give(name: str) -> None:
            self.held -= back
            self.given_back.append(name)

        return [
            Level("everything", ("hybrid",)),
            Level("shorter", ("hybrid",), None, DraftLimits(8, 4), release=lambda: give("a")),
            Level("lookup", ("lookup",), frozenset({"lookup"}), DraftLimits(2, 2), model=False,
                  release=lambda: give("b")),
            Level("plain", (), frozenset(), DraftLimits(0, 0), model=False,
                  release=lambda: give("c")),
        ]  # fmt: skip


def guard(process: Process, granted: int, back: int = 0) -> MemoryGuard:
    session = FakeModel(12).open(4096)
    return MemoryGuard(
        lambda: granted, COSTS, process.levels(back), lambda: session, read=process.read
    )


def full() -> int:
    level = Process(0).levels()[0]
    return COSTS.of(level, CONTEXT, sampled=False).total


def begun(process: Process, granted: int, back: int = 0) -> tuple[MemoryGuard, Metrics]:
    found, metrics = guard(process, granted, back), Metrics()
    found.begin(CONTEXT, metrics, sampled=False)
    return found, metrics


def events(metrics: Metrics) -> Iterator[tuple[str, str, str]]:
    assert metrics.memory is not None
    for event in metrics.memory.events:
        yield event.kind, event.before, event.after


def test_with_room_nothing_is_given_up() -> None:
    process = Process(35 * MB)
    found, metrics = begun(process, full())
    for _ in range(10 * EVERY):
        found.tick()
    assert list(events(metrics)) == []
    assert process.given_back == []
    assert metrics.memory is not None
    assert metrics.memory.facts()["expected_bytes"] == full()


def test_a_text_that_does_not_fit_begins_with_less() -> None:
    found, metrics = begun(Process(35 * MB), full() - 1)
    assert list(events(metrics)) == [("retreat", "everything", "shorter")]
    assert found.level.limits == DraftLimits(8, 4)
    found, metrics = begun(Process(35 * MB), full() - 4 * MB)
    assert found.level.name == "lookup", "the draft's cache takes 5 MB"


def test_pressure_goes_step_by_step_and_only_as_far_as_needed() -> None:
    process = Process(35 * MB)
    found, metrics = begun(process, full(), back=4 * MB)
    process.held = full() + 5 * MB
    found.check()
    assert list(events(metrics)) == [
        ("retreat", "everything", "shorter"),
        ("retreat", "shorter", "lookup"),
    ]
    assert process.given_back == ["a", "b"]
    assert metrics.memory is not None
    assert metrics.memory.events[0].bytes == full() + 5 * MB
    assert metrics.memory.most == full() + 5 * MB


def test_it_returns_when_there_is_room_for_long_enough() -> None:
    process = Process(35 * MB)
    found, metrics = begun(process, full())
    process.held = full() + MB
    with pytest.raises(MemoryBudgetError):
        begun(Process(full()), 30 * MB)
    found.check()
    assert found.level.name == "plain"
    process.held = 35 * MB
    looks = 0
    while found.level.name != "everything":
        found.check()
        looks += 1
        assert looks < 100
    kinds = [kind for kind, *_ in events(metrics)]
    assert kinds == ["retreat"] * 3 + ["return"] * 3
    assert looks > 6, "it must not come back at the first free byte"


def test_it_looks_only_now_and_then() -> None:
    process, looks = Process(35 * MB), []
    found, _ = begun(process, full())
    found._read = lambda: looks.append(1) or 35 * MB  # type: ignore[func-returns-value]
    for _ in range(10 * EVERY):
        found.tick()
    assert len(looks) == 10


def test_a_text_that_never_fits_is_refused_with_bytes_and_options() -> None:
    plain = COSTS.of(Process(0).levels()[-1], CONTEXT, sampled=False).total
    with pytest.raises(MemoryBudgetError) as refused:
        begun(Process(35 * MB), plain - MB)
    line = str(refused.value)
    assert f"needs {plain / MB:.1f} MB" in line or f"needs {plain / MB + 0.1:.1f} MB" in line
    assert f"give --memory {-(-plain // MB)}MB" in line
    assert "or take a text of 9" in line
    begun(Process(35 * MB), -(-plain // MB) * MB)  # what it names is enough


def test_a_refusal_names_the_draft_model_where_leaving_it_out_is_enough() -> None:
    plain = COSTS.of(Process(0).levels()[-1], CONTEXT, sampled=False).total
    for missing, named in ((1, True), (5, True), (6, False)):
        with pytest.raises(MemoryBudgetError) as refused:
            begun(Process(30 * MB), plain - missing * MB)
        assert ("leaves out a draft model of 5.0 MB" in str(refused.value)) == named
    alone = dataclasses.replace(COSTS, draft=None)
    assert alone.without_draft(plain, plain - MB) == ""


def stated(granted: int) -> tuple[int, MemoryGuard, Process]:
    """The context that is stated for a grant, the guard that must hold it, and its process."""
    process = Process(35 * MB)
    context = fitted(COSTS, "hybrid", granted, 4096, None)
    return context, guard(process, granted), process


def grows_and_begins(granted: int) -> None:
    context, found, process = stated(granted)
    assert 16 < context < 512, "plain decoding alone fits"
    process.held += 4 * MB  # of a tokenizer, of a server
    found.begin(context, Metrics(), sampled=True)


def test_a_stated_context_holds_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    grows_and_begins(44 * MB)
    # Broken twin: the context takes the last byte.
    monkeypatch.setattr("edgedec.loading.sessions.spare", lambda granted: 0)
    with pytest.raises(MemoryBudgetError, match=r"take a text of \d+ tokens"):
        grows_and_begins(40 * MB)


def test_what_an_opening_refusal_names_is_enough() -> None:
    for granted in (30 * MB, 35 * MB):
        with pytest.raises(MemoryBudgetError) as refused:
            fitted(COSTS, "hybrid", granted, 4096, None)
        needed = re.search(r"give --memory (\d+)MB", str(refused.value))
        assert needed is not None
        assert fitted(COSTS, "hybrid", int(needed[1]) * MB, 4096, None) >= 16


def test_free_memory_of_the_heap_is_given_back_before_anything_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(35 * MB)
    found = guard(process, full())
    process.held += 30 * MB
    with pytest.raises(MemoryBudgetError):
        found.begin(CONTEXT, Metrics(), sampled=False)
    monkeypatch.setattr(
        "edgedec.memory.guard.release_free", lambda: setattr(process, "held", 35 * MB)
    )
    found.begin(CONTEXT, metrics := Metrics(), sampled=False)
    assert list(events(metrics)) == []


def test_what_others_take_of_the_margin_is_still_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 2000 * MB
    monkeypatch.setattr("edgedec.memory.grant.machine.memory", lambda: Memory(None, free, None))
    at_opening = granting("auto")()
    free -= 60 * MB
    assert granting("auto", later=True)() >= at_opening > granting("auto")()
    assert granting(5, later=True)() == granting(5)() == 5


def test_memory_of_others_is_counted_as_well() -> None:
    process = Process(35 * MB)
    found, metrics = begun(process, full() + 10 * MB)
    assert list(events(metrics)) == []
    process.held = full() + 9 * MB + MB // 2  # 10 MB that no account names
    later = Metrics()
    found.begin(CONTEXT, later, sampled=False)
    assert list(events(later)) == []
    process.held += 6 * MB
    found.begin(CONTEXT, later, sampled=False)
    assert list(events(later)), "the program around takes what was free"


def test_a_process_that_stays_too_large_ends_the_text() -> None:
    process = Process(35 * MB)
    found, _ = begun(process, full())
    process.held = int(full() * 1.02)
    found.check()
    assert found.level.name == "plain"
    process.held = int(full() * 1.04)
    with pytest.raises(MemoryBudgetError, match="give --memory"):
        found.check()


def test_what_is_free_leaves_room_for_the_texts_that_run() -> None:
    process, granted = Process(35 * MB), full() + 50 * MB
    found, _ = begun(process, granted)
    assert found.free_bytes(running=True) == 50 * MB
    assert found.free_bytes(running=False) == granted - 35 * MB
    process.held = full() + 40 * MB
    assert found.free_bytes(running=True) == 10 * MB


def test_parallel_texts_leave_room_to_tokenise_a_prompt() -> None:
    several = dataclasses.replace(COSTS, parallel=4)
    assert (COSTS.tokenising(CONTEXT), several.tokenising(CONTEXT)) == (
        0,
        TOKENISING_BYTES * CONTEXT,
    )
    found = MemoryGuard(
        lambda: full() + 10 * MB, several, Process(0).levels(), lambda: FakeModel(12).open(4096),
        read=lambda: 35 * MB,
    )  # fmt: skip
    found.begin(CONTEXT, Metrics(), sampled=False)
    assert found.free_bytes(running=True) >= TOKENISING_BYTES * CONTEXT


def test_the_policy_is_cut_to_the_level() -> None:
    process = Process(35 * MB)
    found, _ = begun(process, full())
    policy = Restrained(Fixed(16), found)

    def asks(source: str) -> bool:
        return policy.go_on(DraftStep(Offer(source, lambda: 1.0)))

    assert policy.limits() == DraftLimits(16, 16)
    assert asks("model")
    process.held = full() + MB
    found._at = 2
    assert policy.limits() == DraftLimits(2, 2)
    assert asks("lookup")
    assert not asks("model"), "its cache was given back"


def test_a_draft_model_that_is_unloaded_is_not_counted_as_held() -> None:
    # Else what others hold would look that much less, and each text would load it again in vain.
    process = Process(full())

    def unload() -> None:
        process.held = granted + 3 * MB - 10 * MB

    unloaded = Level(
        "unloaded", (), frozenset(), DraftLimits(0, 0), model=False, weights=False,
        release=unload,
    )  # fmt: skip
    costs = dataclasses.replace(COSTS, draft=ModelCosts(10 * MB, 5_000, 4096, 12, rows=17))
    granted = costs.of(process.levels()[0], CONTEXT, sampled=False).total
    found = MemoryGuard(
        lambda: granted,
        costs,
        [*process.levels()[:1], unloaded],
        lambda: FakeModel(12).open(4096),
        read=process.read,
    )
    found.begin(CONTEXT, Metrics(), sampled=False)
    assert found.level.name == "everything"
    process.held = granted + 3 * MB  # others hold more
    found.check()
    assert found.level.name == "unloaded"
    metrics = Metrics()
    found.begin(CONTEXT, metrics, sampled=False)
    assert found.level.name == "unloaded"
    assert list(events(metrics)) == []


class Growing:
    """A draft's session whose cache grows."""

    def __init__(self, allocated: int, length: int = 0) -> None:
        self.allocated, self.length, self.reserved = allocated, length, list[int]()

    def reserve(self, tokens: int) -> None:
        self.reserved.append(tokens)


NEEDED = CONTEXT + COSTS.drafted + 1
DRAFT = ModelCosts(5 * MB, 5_000, 4096, 12, rows=17)


@pytest.mark.parametrize(
    ("allocated", "length", "room", "reserved"),
    [
        (0, 0, DRAFT.cache(NEEDED), [NEEDED]),
        (0, 0, DRAFT.cache(NEEDED) - 1, []),
        # While it grows, memory holds what is filled twice.
        (300, 200, DRAFT.cache(NEEDED + 200), [NEEDED]),
        (300, 200, DRAFT.cache(NEEDED + 200) - 1, []),
        (NEEDED - 1, 0, DRAFT.cache(NEEDED), [NEEDED]),
        (NEEDED, 0, DRAFT.cache(NEEDED), []),
    ],
)
def test_the_drafts_cache_is_allocated_at_once_where_memory_holds_it(
    allocated: int, length: int, room: int, reserved: list[int]
) -> None:
    draft, granted = Growing(allocated, length), 100 * MB
    for levels, found in ((Process(0).levels()[:1], reserved), (Process(0).levels()[2:], [])):
        process = Process(20 * MB)
        guard = MemoryGuard(
            lambda: granted, COSTS, levels, lambda: FakeModel(12).open(4096),
            draft=draft, read=process.read,  # type: ignore[arg-type]
        )  # fmt: skip
        guard._context, process.held = CONTEXT, granted - room
        draft.reserved.clear()
        guard._allocate_draft()
        assert draft.reserved == found
