"""The loop: the text is the target's own, whatever drafts, and however it ends."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, sleep

import pytest

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import DrafterParts, DraftLimits, GoOn
from edgedec.decoding.emission import Emission
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Streams
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Rows, SamplingParams
from edgedec.decoding.session import OnChunk, Want
from edgedec.decoding.tree import Draft
from edgedec.errors import InputError, Interrupted, PromptTooLong
from edgedec.testing import FakeModel, decoding

PROMPT = [3, 1, 4, 1, 5]
DRAFTERS = ["none", "model", "tree", "lookup", "recycle", "hybrid", "adaptive"]


class Harness:
    """An engine over fake models that resemble each other."""

    def __init__(self, drafter: str, draft_length: int = 4, **target: object) -> None:
        options: dict[str, object] = {"context": 2, "sharpness": 3.0, **target}
        self.target = FakeModel(16, **options)  # type: ignore[arg-type]
        draft = FakeModel(16, seed=1, context=2, sharpness=3.0, like=(self.target, 0.8))
        self.rule = acceptance.rule("coupling")
        self.drafter = drafting.create(drafter, DrafterParts(16, draft.open(600)))
        self.engine = Engine(self.target.open(400), self.drafter, Fixed(draft_length), self.rule)

    def request(self, sampling: SamplingParams, prompt: Sequence[int], **stop: object) -> Request:
        return decoding.request(sampling, 16, prompt, coupled=self.rule.coupled, logprobs=3, **stop)

    def run(
        self, sampling: SamplingParams, prompt: Sequence[int] = PROMPT, **stop: object
    ) -> tuple[list[Emission], str | None, Metrics]:
        request, metrics = self.request(sampling, prompt, **stop), Metrics()
        events = [event for block in self.engine.run(request, metrics) for event in block]
        return events, request.stop.reason, metrics


def same(got: list[Emission], expected: list[Emission]) -> bool:
    """Same tokens, same text, same logprobs; only the source may differ."""
    return [(e.token, e.text, e.logprob, e.top_logprobs) for e in got] == [
        (e.token, e.text, e.logprob, e.top_logprobs) for e in expected
    ]


class AcceptsAll:
    """Broken twin: keeps whatever was drafted."""

    name, lossless, coupled, want = "all", True, True, Want.TOP

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        path = draft.tree.path_to(len(draft.tree) - 1)
        return Verdict(path, rows.draw(path[-1]))


class OffByOneRow:
    """Broken twin: reads the row of the node before."""

    name, lossless, coupled, want = "shifted", True, True, Want.TOP

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        good = acceptance.rule("coupling").accept(draft, rows, streams)
        return Verdict(good.path, rows.draw(good.path[max(0, len(good.path) - 2)]))


@pytest.mark.parametrize("twin", [AcceptsAll(), OffByOneRow()])
def test_a_broken_rule_is_noticed(twin: acceptance.AcceptanceRule) -> None:
    expected, _, _ = Harness("none").run(SamplingParams())
    harness = Harness("model")
    harness.engine.rule = twin
    assert not same(harness.run(SamplingParams())[0], expected)


@pytest.mark.parametrize("draft_length", [1, 2, 7])
@pytest.mark.parametrize("limit", [1, 2, 3, 10, 11, 12])
def test_a_limit_cuts_an_accepted_run(draft_length: int, limit: int) -> None:
    expected, _, _ = Harness("none").run(SamplingParams(), max_new_tokens=limit)
    harness = Harness("model", draft_length)
    events, reason, metrics = harness.run(SamplingParams(), max_new_tokens=limit)
    assert same(events, expected)
    assert (len(events), reason) == (limit, "length")
    assert metrics.emitted == limit
    assert harness.engine.target.length == len(PROMPT) + limit - 1


class Oracle(Harness):
    """The draft is the target itself, so that all of it is accepted."""

    def __init__(self, draft_length: int) -> None:
        super().__init__("model", draft_length)
        own = drafting.create("model", DrafterParts(16, self.target.open(600)))
        self.engine.drafter = self.drafter = own


@pytest.mark.parametrize("limit", [1, 2, 5, 7, 8])
def test_what_was_accepted_beyond_the_end_is_not_counted(limit: int) -> None:
    events, _, metrics = Oracle(6).run(SamplingParams(), max_new_tokens=limit)
    assert metrics.accepted_tokens == sum(event.source == "draft" for event in events)
    plain, _, _ = Harness("none").run(SamplingParams())
    eos = plain[limit].token
    events, reason, metrics = Oracle(6).run(SamplingParams(), eos_ids=(eos,))
    assert reason == "eos"
    assert metrics.accepted_tokens == sum(event.source == "draft" for event in events)
    assert metrics.accepted_tokens <= metrics.emitted


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_eos_inside_an_accepted_run(drafter: str) -> None:
    plain, _, _ = Harness("none").run(SamplingParams())
    for eos in {event.token for event in plain}:
        expected, why, _ = Harness("none").run(SamplingParams(), eos_ids=(eos,))
        harness = Harness(drafter, 7)
        events, reason, _ = harness.run(SamplingParams(), eos_ids=(eos,))
        # What was accepted after the EOS never happened: it is not in the cache either.
        assert harness.engine.target.length == len(PROMPT) + len(events) - 1
        assert same(events, expected)
        assert reason == why == "eos"
        assert events[-1].token == eos


def test_one_token_prompt() -> None:
    for drafter in DRAFTERS:
        expected, _, _ = Harness("none").run(SamplingParams(), [9])
        assert same(Harness(drafter).run(SamplingParams(), [9])[0], expected)


def test_the_context_ends_the_text() -> None:
    harness = Harness("model", 7)
    events, reason, _ = harness.run(SamplingParams(), max_new_tokens=10_000)
    assert reason == "length"
    assert len(events) == 400 - len(PROMPT) + 1
    expected, _, _ = Harness("none").run(SamplingParams(), max_new_tokens=10_000)
    assert same(events, expected)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_closed_stream_leaves_the_engine_usable(drafter: str) -> None:
    expected, _, _ = Harness("none").run(SamplingParams())
    harness = Harness(drafter)
    rounds = harness.engine.run(harness.request(SamplingParams(), [7, 7, 2]), Metrics())
    next(rounds)
    next(rounds)
    rounds.close()  # type: ignore[attr-defined]
    assert same(harness.run(SamplingParams())[0], expected)


def test_cancel_ends_between_rounds() -> None:
    harness = Harness("model")
    request = harness.request(SamplingParams(), PROMPT)
    rounds = harness.engine.run(request, Metrics())
    next(rounds)
    request.cancelled.set()
    assert list(rounds) == []
    assert request.stop.reason == "cancelled"
    expected, _, _ = Harness("none").run(SamplingParams())
    assert same(harness.run(SamplingParams())[0], expected)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("chunk", [1, 2])
def test_a_session_that_is_interrupted_while_it_reads_the_prompt_raises(
    drafter: str, chunk: int
) -> None:
    """A text after half a prompt would be wrong."""
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    harness = Harness(drafter)
    request, session = harness.request(SamplingParams(), prompt), harness.engine.target
    honest, told = session.prefill, []

    def prefill(tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        def counted(done: int, total: int) -> None:
            told.append(done)
            if len(told) == chunk:
                session.interrupt()
            if on_chunk is not None:
                on_chunk(done, total)

        honest(tokens, counted)

    session.prefill = prefill  # type: ignore[method-assign]
    metrics = Metrics()
    with pytest.raises(Interrupted):
        list(harness.engine.run(request, metrics))
    assert (metrics.emitted, request.stop.reason) == (0, None)
    session.prefill = honest  # type: ignore[method-assign]
    expected, _, _ = Harness("none").run(SamplingParams(), prompt)
    assert same(harness.run(SamplingParams(), prompt)[0], expected)


def test_a_deadline_ends_between_rounds() -> None:
    harness = Harness("model")
    request = harness.request(SamplingParams(), PROMPT)
    request.deadline = perf_counter() - 1
    assert list(harness.engine.run(request, Metrics())) == []
    assert request.stop.reason == "timeout"


def test_a_slow_policy_counts_as_time_of_the_round() -> None:
    class Slow(Fixed):
        def observe(self, record: object) -> None:
            sleep(0.002)

    harness = Harness("none")
    harness.engine.policy = Slow(0)
    _, _, metrics = harness.run(SamplingParams(), max_new_tokens=6)
    assert metrics.rounds_s >= 6 * 0.002
    assert metrics.tpot_s >= 0.002
    assert metrics.engine_s >= 6 * 0.002


class Explodes:
    """A drafter that fails in its third round."""

    name = "explodes"

    def __init__(self, inner: object) -> None:
        self._inner, self._left = inner, 3

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("a fault in the drafter")
        draft: Draft = self._inner.propose(root, limits, go_on, streams)  # type: ignore[attr-defined]
        return draft


def test_an_exception_leaves_the_engine_usable() -> None:
    expected, _, _ = Harness("none").run(SamplingParams())
    harness = Harness("model")
    harness.engine.drafter = Explodes(harness.drafter)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="fault"):
        harness.run(SamplingParams())
    assert same(harness.run(SamplingParams())[0], expected)


def test_bad_prompts() -> None:
    harness = Harness("none")
    with pytest.raises(InputError, match="empty"):
        harness.run(SamplingParams(), [])
    with pytest.raises(PromptTooLong, match="400"):
        harness.run(SamplingParams(), [1] * 401)
    request = harness.request(SamplingParams(), PROMPT)
    request.prompt = []  # the sampler refuses an empty prompt before the engine sees it
    with pytest.raises(InputError, match="empty"):
        list(harness.engine.run(request, Metrics()))
