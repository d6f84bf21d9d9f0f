"""Several texts of one pipeline, round by round: each is the text it would have been alone."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import demo_head
import numpy as np
import pytest
import test_pipeline
from kinds import in_full

from edgedec import GenerateOptions, Generation, Pipeline, SamplingParams
from edgedec.decoding import session_pool
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.session_pool import PooledSession
from edgedec.errors import InputError, PassFailed, StateError
from edgedec.generation.stream import Stream
from edgedec.runtimes.onnx.session import OnnxSession

bundle = test_pipeline.bundle  # the pair of models
SYSTEM = [5 + n % 80 for n in range(150)]
LONG = [7 + n % 60 for n in range(500)]
DRAFTERS = ["none", "model", "hybrid", "recycle"]


def prompts() -> list[list[int]]:
    """Some share a beginning, longer than what a turn reads."""
    return [[*SYSTEM, topic, 9, topic] for topic in range(4)] + [LONG, [5, 6, 7, 8, 5, 6, 7]]


def options(place: int, **changes: Any) -> GenerateOptions:
    sampling = SamplingParams(temperature=0.9 if place % 2 else 0, seed=place)
    given: dict[str, Any] = {"max_new_tokens": 20 + place, "ignore_eos": True, "sampling": sampling}
    return GenerateOptions(**{**given, **changes})


@pytest.fixture(scope="module")
def alone(bundle: Path) -> list[list[int]]:
    """The texts of one after another, decoded plainly."""
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        found = []
        for index, prompt in enumerate(prompts()):
            pipeline.forget()
            found.append(pipeline.generate(prompt, options(index)).token_ids)
        return found


def by_turns(pipeline: Pipeline, parallel: int, seed: int) -> list[list[int]]:
    """Decode all prompts, some at a time, in a random order of turns."""
    return [one.token_ids for one in taking_turns(pipeline, prompts(), parallel, seed)]


def taking_turns(
    pipeline: Pipeline, texts: list[list[int]], parallel: int, seed: int
) -> list[Generation]:
    chance = random.Random(seed)
    waiting = list(enumerate(texts))
    running: dict[int, Stream] = {}
    found: dict[int, Generation] = {}
    while waiting or running:
        if waiting and len(running) < parallel:
            place, prompt = waiting.pop(0)
            running[place] = pipeline.stream(prompt, options(place))
            running[place].turn()
        place = chance.choice(list(running))
        if running[place].turn() is None:
            result = running.pop(place).result
            assert result is not None
            found[place] = result
    return [found[place] for place in sorted(found)]


@pytest.fixture(params=DRAFTERS)
def pipeline(bundle: Path, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with Pipeline.open(bundle, drafter=request.param, threads=1, parallel=3) as opened:
        yield opened


@pytest.mark.parametrize("seed", in_full(range(3)))
def test_texts_by_turns_are_those_of_texts_alone(
    pipeline: Pipeline, alone: list[list[int]], seed: int
) -> None:
    assert by_turns(pipeline, 3, seed) == alone
    assert len(pipeline.engine.pool) <= 3
    assert not any(
        engine.running for engine in [pipeline.engine, *pipeline._parts.parallel_engines]
    )


def test_a_session_that_is_taken_from_a_text_in_use_is_noticed(
    bundle: Path, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: sessions in use are taken as if they were idle."""
    monkeypatch.setattr(
        PooledSession, "busy", property(lambda self: False, lambda self, value: None)
    )
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=3) as pipeline:
        try:
            found: object = by_turns(pipeline, 3, 0)
        except Exception as error:  # or whatever a session says to it
            found = error
    assert found != alone


def test_a_prefix_is_forked_from_a_text_in_use(bundle: Path) -> None:
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=2) as pipeline:
        first = pipeline.stream([*SYSTEM, 1], options(0))
        while not first.turn():
            pass
        second = pipeline.generate([*SYSTEM, 2], options(0))
        assert second.metrics.reused_tokens == len(SYSTEM)
        assert not first.metrics.reused_tokens


def test_a_long_prompt_is_read_by_turns(bundle: Path) -> None:
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=2) as pipeline:
        stream, turns = pipeline.stream(LONG, options(0)), 0
        while not stream.turn():
            turns += 1
            assert stream.metrics.prefill_tokens_left == len(LONG) - 1 - 128 * turns
        # The last part is read in the turn of the first token.
        assert turns == -(-(len(LONG) - 1) // 128) - 1
        assert not stream.metrics.prefill_tokens_left


def test_a_text_too_many_is_refused_and_disturbs_none(bundle: Path) -> None:
    with Pipeline.open(bundle, threads=1, parallel=2) as pipeline:
        kept = [pipeline.stream(prompt, options(0)) for prompt in prompts()[:2]]
        for stream in kept:
            stream.turn()
        with pytest.raises(StateError, match="another text is being decoded"):
            pipeline.stream([5, 6, 7], options(0)).turn()
        for stream in kept:
            for _ in stream:
                pass
            assert stream.result is not None


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_a_text_that_ends_early_makes_room(bundle: Path, alone: list[list[int]], end: str) -> None:
    with Pipeline.open(bundle, drafter="hybrid", threads=1, parallel=2) as pipeline:
        left = pipeline.stream(LONG, options(0, max_new_tokens=400))
        for _ in range(5):
            left.turn()
        getattr(left, end)()
        if end == "cancel":
            assert left.turn() is None
        assert by_turns(pipeline, 2, 0) == alone


def test_models_opened_elsewhere_go_on_with_every_text(
    bundle: Path, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text's failed pass moves the models; the texts that took turns with it move, too."""
    honest, passes = OnnxSession._score, iter(range(10**9))

    def fails_once(self: OnnxSession, *arguments: Any) -> Any:
        if next(passes) == 12:
            raise PassFailed("gone")
        return honest(self, *arguments)

    with Pipeline.open(bundle, drafter="lookup", threads=1, parallel=3) as pipeline:
        monkeypatch.setattr(OnnxSession, "_score", fails_once)
        assert by_turns(pipeline, 3, 1) == alone
        assert len(pipeline.notes) == 1


def test_what_one_text_at_a_time_allows_is_refused(bundle: Path, tmp_path: Path) -> None:
    with Pipeline.open(bundle, threads=1, parallel=2) as pipeline:
        with pytest.raises(StateError, match="without parallel"):
            pipeline.save(tmp_path / "text")
        with pytest.raises(StateError, match="without parallel"):
            pipeline.restore(tmp_path / "text")
    with pytest.raises(InputError, match="expected 1 with the schedule overlapped"):
        Pipeline.open(bundle, schedule="overlapped", parallel=2)
    with pytest.raises(InputError, match="parallel is 0"):
        Pipeline.open(bundle, parallel=0)


def test_a_memory_limit_counts_every_text(bundle: Path) -> None:
    def most(parallel: int) -> int:
        options: dict[str, Any] = {"plan": "none", "memory": 4_000_000_000, "threads": 1}
        with Pipeline.open(bundle, parallel=parallel, **options) as pipeline:
            streams = [pipeline.stream(prompt) for prompt in prompts()[:parallel]]
            for stream in streams:
                stream.turn()
            record = streams[-1].metrics.memory
            assert record is not None
            return record.account["target_kv"] + record.account["draft_kv"]

    one, three = most(1), most(3)
    assert three == pytest.approx(3 * one, rel=0.1)


def test_sessions_in_use_are_not_taken_even_when_there_are_too_few() -> None:
    from edgedec.testing import FakeModel

    pool = session_pool.SessionPool(FakeModel(16).open(64))
    held = pool.acquire([1, 2, 3])
    with pytest.raises(StateError, match="all 1 sessions are in use"):
        pool.acquire([1, 2, 4])
    held.release([])
    pool.acquire([1, 2, 4])


# -- heads --------------------------------------------------------------------------------------


@functools.cache
def with_heads(parallel: int, drafter: str) -> list[Generation]:
    """Python that a head is often right about, of one beginning; the last two are longer."""
    with Pipeline.open(
        demo_head.bundle(), drafter=drafter, threads=1, draft_length=3, parallel=parallel
    ) as pipeline:
        encode = pipeline.tokenizer.encode
        start = "class Reader:\n    def __init__(self, path):\n        self.path = path\n"
        ends = ["\n    def read(self):", "\n    def close(self):", "\n\ndef main():", start * 8]
        texts = [list(encode(start + end)) for end in ends] + [list(encode(ends[-1]))]
        return taking_turns(pipeline, texts, parallel, 0)


def accepted(found: list[Generation]) -> int:
    return sum(one.metrics.accepted_tokens for one in found)


@pytest.mark.parametrize("drafter", in_full(["head", "headed"]))
def test_each_text_has_a_head_of_its_own(drafter: str) -> None:
    found = with_heads(2, drafter)
    assert [one.token_ids for one in found] == [one.token_ids for one in with_heads(1, "none")]
    assert accepted(found) > 0.8 * accepted(with_heads(1, drafter))


def test_a_head_that_is_shown_the_states_of_another_text_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken twin: it gets those that were read last, mostly by the other one."""
    read, shown = HeadDrafter.read, dict[int, np.ndarray]()

    def crossed(self: HeadDrafter, position: int, states: np.ndarray) -> None:
        last = shown.get(len(states), states)
        shown[len(states)] = states.copy()
        read(self, position, last)

    alone = accepted(with_heads(1, "head"))
    monkeypatch.setattr(HeadDrafter, "read", crossed)
    assert accepted(with_heads.__wrapped__(2, "head")) < 0.8 * alone
