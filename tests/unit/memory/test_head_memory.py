"""A head under a memory limit: counted, given up before the target's cache, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import demo_head
import numpy as np
import pytest
from kinds import in_full

from edgedec import GenerateOptions, Pipeline
from edgedec.decoding.drafting._head_context import HeadContext
from edgedec.errors import MemoryBudgetError, StateError
from edgedec.hardware.resident import keep_heap_small, release_free, resident_bytes
from edgedec.loading import heads
from edgedec.loading.sessions import fitted
from edgedec.loading.unloading import UnloadableHead
from edgedec.memory.grant import with_spare
from edgedec.memory.guard import MemoryGuard
from edgedec.memory.levels import FULL, Level
from edgedec.runtimes.onnx.head import OnnxHead
from edgedec.runtimes.onnx.model import OnnxModel

PROMPT = "def read_lines(path):"
ASK = GenerateOptions(32, ignore_eos=True)
OPTIONS: dict[str, Any] = {"plan": "none", "threads": 1, "draft_length": 3}
MB = 1_000_000


@pytest.fixture(scope="module")
def expected() -> list[int]:
    with Pipeline.open(demo_head.bundle(), drafter="none", **OPTIONS) as pipeline:
        return list(pipeline.generate(PROMPT, ASK).token_ids)


def opened() -> Iterator[Pipeline]:
    keep_heap_small()
    release_free()
    with Pipeline.open(demo_head.bundle(), memory=4000 * MB, **OPTIONS) as pipeline:
        assert pipeline.plan["drafter"] == "headed"
        yield pipeline


headed = pytest.fixture(opened)
unused = pytest.fixture(opened, scope="module")  # of tests that decode nothing


def guard_of(pipeline: Pipeline) -> MemoryGuard:
    guard = pipeline._parts.guard
    assert guard is not None
    return guard


def go_to(pipeline: Pipeline, name: str) -> None:
    guard = guard_of(pipeline)
    guard._go_to([level.name for level in guard._levels].index(name), "asked for", 0)


def test_an_unloaded_head_computes_nothing() -> None:
    file = demo_head.bundle() / "target" / "head.onnx"
    head = UnloadableHead(lambda: OnnxHead.with_fusion(file, threads=1))
    session = head.open(16)
    states = np.zeros((2, head.state_width), np.float32)
    session.carry(head.fuse(states))
    session.prefill([1, 2])
    head.unload()
    assert session.length == 0
    for call in (lambda: head.fuse(states), lambda: session.carry(states)):
        with pytest.raises(StateError, match="the head is unloaded"):
            call()
    head.load()
    session.carry(head.fuse(states))
    session.prefill([1, 2])
    assert session.length == 2
    session.close()
    head.close()


def test_its_weights_cache_and_states_are_counted(unused: Pipeline) -> None:
    guard = guard_of(unused)
    costs = guard._costs.draft
    assert costs is not None
    head = unused.engine.drafter._arms[-1]._head._head  # type: ignore[attr-defined]
    assert costs.held > head.info.weight_bytes / 2  # the embedding is the target's
    assert costs.kv_bytes_per_token == head.info.kv_bytes_per_token > 0
    assert costs.max_context == unused.engine.target.capacity
    named = {one.name: guard._costs.of(one, 1000, sampled=True).total for one in guard._levels}
    assert named["smaller drafts"] - named["no head"] >= 1000 * costs.kv_bytes_per_token
    assert named["no head"] - named["head unloaded"] >= costs.held


def given_back(pipeline: Pipeline) -> float:
    """The share of its own bytes by which memory falls when the head is unloaded."""
    go_to(pipeline, "no head")
    before = resident_bytes()
    go_to(pipeline, "head unloaded")
    draft = guard_of(pipeline)._costs.draft
    assert draft is not None
    return (before - resident_bytes()) / draft.held


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_it_is_unloaded_and_drafts_again(
    headed: Pipeline, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = headed.generate(PROMPT, ASK)
    assert first.token_ids == expected
    assert given_back(headed) > 0.5
    again = headed.generate(PROMPT, ASK)
    assert again.token_ids == expected
    assert again.metrics.memory is not None
    assert [event.kind for event in again.metrics.memory.events] == ["return"]
    assert again.metrics.sources["head"] == first.metrics.sources["head"] > 0
    # Broken twin: the head stays where it is.
    monkeypatch.setattr(UnloadableHead, "close", lambda self: None)
    monkeypatch.setattr(OnnxModel, "close", lambda self: None)
    assert given_back(headed) < 0.2


def pressed(pipeline: Pipeline, levels: list[str]) -> Any:
    """A text during which decoding goes to one level after the other, every few tokens."""
    found, left = [], list(levels)
    for event in pipeline.stream(PROMPT, ASK):
        found.append(event.token)
        if left and len(found) % 8 == 0:
            go_to(pipeline, left.pop(0))
    assert not left
    return found


@pytest.mark.parametrize("level", in_full(["no head", "head unloaded", "plain decoding"], 2))
def test_retreats_within_a_text(headed: Pipeline, expected: list[int], level: str) -> None:
    drafter = headed.engine.drafter._arms[-1]._head  # type: ignore[attr-defined]
    assert pressed(headed, ["smaller drafts", level]) == expected
    assert (len(drafter._waiting), drafter._held, drafter._session.length) == (1, [], 0)
    note = "going on without the head"
    assert [line for line in guard_of(headed).notes if note in line] == list(headed.notes)
    assert len(headed.notes) == 1


def test_it_comes_back_within_a_text(headed: Pipeline, expected: list[int]) -> None:
    assert pressed(headed, ["no head", FULL]) == expected
    drafter = headed.engine.drafter._arms[-1]._head  # type: ignore[attr-defined]
    assert len(drafter._held) > 8
    assert drafter._first > 8, "it sees the text from where it was kept again"


def test_a_head_that_goes_on_reading_is_noticed(
    headed: Pipeline, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def evict(self: HeadContext, *, kept: bool = False) -> None:
        if not kept:
            self._restart(self._known)

    monkeypatch.setattr(HeadContext, "evict", evict)
    with pytest.raises(AssertionError):
        test_retreats_within_a_text(headed, expected, "no head")


def test_the_largest_context_is_kept_and_the_head_is_not(unused: Pipeline) -> None:
    """Where both do not fit, the context is that of plain decoding without the head."""
    costs = guard_of(unused)._costs
    bare = Level("plain", ("none",), model=False, weights=False)
    room = with_spare(costs.of(bare, 900, sampled=True).total)
    most = fitted(costs, "headed", room, 6000, None)
    assert 850 < most <= 900
    assert fitted(costs, "headed", room + 4000 * MB, 6000, None) == 6000
    # With a draft model of the same size, some of the context is given up for it.
    more = room + costs.of(Level(FULL, ("hybrid",)), 600, sampled=True).draft + 8 * MB
    assert 512 < fitted(costs, "hybrid", more, 6000, None) < 2000
    assert fitted(costs, "headed", more, 6000, None) > 4000


@pytest.mark.parametrize("drafter", in_full(["auto", "headed", "head"]))
def test_a_head_that_does_not_fit_is_not_loaded(
    drafter: str,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(heads, "_OPEN_BYTES", 10**12)
    options = {**OPTIONS, "memory": 4000 * MB, "drafter": drafter}
    with Pipeline.open(demo_head.bundle(), **options) as pipeline:
        assert pipeline.plan["drafter"] == "text"
        (note,) = pipeline.notes
        assert note.startswith("the head is left out, since the target's cache comes first")
        assert pipeline.generate(PROMPT, ASK).token_ids == expected
    assert "the head is left out" in caplog.text


def test_a_refusal_does_not_count_it(unused: Pipeline) -> None:
    costs = guard_of(unused)._costs
    with pytest.raises(MemoryBudgetError, match="plain decoding with a context of 16") as refused:
        fitted(costs, "headed", costs.process, 6000, None)
    assert "--drafter" not in str(refused.value)


def test_several_texts_in_turn_have_heads_of_their_own(expected: list[int]) -> None:
    options = {**OPTIONS, "parallel": 2, "memory": 4000 * MB}
    with Pipeline.open(demo_head.bundle(), **options) as pipeline:
        costs = guard_of(pipeline)._costs.draft
        one, other = pipeline.engine, *pipeline._parts.parallel_engines
        drafters = [e.drafter._arms[-1]._head for e in (one, other)]  # type: ignore[attr-defined]
        assert drafters[0]._session is not drafters[1]._session
        assert costs is not None
        each = drafters[0]._head.info.kv_bytes_per_token
        memory = guard_of(pipeline)._costs
        full = Level("everything", ("headed",))
        alone = memory.of(full, 500, sampled=False)
        both = memory.of(full, 500, sampled=False, beside=(300,))
        assert both.draft_kv - alone.draft_kv == (300 + memory.drafted) * each
        assert pipeline.generate(PROMPT, ASK).token_ids == expected
