"""A pipeline survives whatever is done to its streams, and its limits hold at their edges."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import tiny_bundles
from kinds import in_full
from tiny_checkpoints import noisy_checkpoint
from waiting import LIMIT_S

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.decoding.emission import Emission
from edgedec.errors import InputError, MemoryBudgetError, PromptTooLong, StateError
from edgedec.generation.stream import Stream
from edgedec.runtimes.onnx.session import OnnxSession

CONTEXT, DRAFT_CONTEXT = 1024, 48
PROMPT = [5, 6, 7, 8, 5, 6, 7]
LONG = [5 + n % 80 for n in range(1000)]
OPTIONS = GenerateOptions(max_new_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The draft is the target with some noise and a much shorter context."""
    folder = tmp_path_factory.mktemp("pair")
    target = noisy_checkpoint(folder / "target", noise=0, context=CONTEXT)
    draft = noisy_checkpoint(folder / "draft", noise=0.01, context=DRAFT_CONTEXT)
    return tiny_bundles.exact(target, draft)


@pytest.fixture(scope="module")
def opened(bundle: Path) -> Iterator[Callable[..., Pipeline]]:
    """Pipelines by their options; kept, so that each test meets what the last one left."""
    kept: dict[str, Pipeline] = {}

    def get(**options: Any) -> Pipeline:
        name = repr(options)
        if name not in kept:
            kept[name] = Pipeline.open(bundle, threads=1, **options)
        return kept[name]

    yield get
    for pipeline in kept.values():
        pipeline.close()


@pytest.fixture(params=in_full(["hybrid", "tree", "model", "recycle", "none"], 2))
def pipeline(opened: Callable[..., Pipeline], request: pytest.FixtureRequest) -> Pipeline:
    return opened(drafter=request.param, draft_length=3)


@pytest.fixture
def unharmed(opened: Callable[..., Pipeline]) -> Callable[[Pipeline], None]:
    """The next text is what plain decoding gives in a fresh pipeline."""

    def check(pipeline: Pipeline) -> None:
        for prompt in (PROMPT, LONG[:60]):
            expected = opened(drafter="none").generate(prompt, OPTIONS)
            found = pipeline.generate(prompt, OPTIONS)
            assert (found.token_ids, found.text) == (expected.token_ids, expected.text)
            assert found.finish_reason == "length"

    return check


class TestStreamsThatEndEarly:
    def test_closed(self, pipeline: Pipeline, unharmed: Callable[[Pipeline], None]) -> None:
        stream = pipeline.stream(LONG[:40], OPTIONS)
        next(stream)
        stream.close()
        assert list(stream) == []
        assert stream.result is None
        unharmed(pipeline)

    def test_collected(self, pipeline: Pipeline, unharmed: Callable[[Pipeline], None]) -> None:
        next(pipeline.stream(LONG[:40], OPTIONS))
        unharmed(pipeline)

    def test_cancelled(self, pipeline: Pipeline, unharmed: Callable[[Pipeline], None]) -> None:
        stream = pipeline.stream(PROMPT, OPTIONS)
        events = [next(stream)]
        stream.cancel()
        events += stream
        assert stream.result is not None
        assert stream.result.finish_reason == "cancelled"
        assert stream.result.events == events
        unharmed(pipeline)

    def test_cancelled_before_the_start(self, pipeline: Pipeline) -> None:
        stream = pipeline.stream(PROMPT, OPTIONS)
        stream.cancel()
        assert list(stream) == []
        assert stream.result is not None
        assert (stream.result.finish_reason, stream.result.text) == ("cancelled", "")

    def test_cancelling_a_finished_one_is_harmless(self, pipeline: Pipeline) -> None:
        old = pipeline.stream(PROMPT, OPTIONS)
        list(old)
        stream = pipeline.stream(PROMPT, OPTIONS)
        next(stream)
        old.cancel()
        list(stream)
        assert stream.result is not None
        assert stream.result.finish_reason == "length"

    def test_ctrl_c_inside_a_pass(
        self,
        pipeline: Pipeline,
        unharmed: Callable[[Pipeline], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """In any of the first passes of target and draft, before it and after it."""
        honest, left = OnnxSession.forward, [0]

        def forward(self: OnnxSession, *args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            scored = honest(self, *args, **named)
            if left[0] == -1:
                raise KeyboardInterrupt
            return scored

        for count in (1, 2, 3, 5):
            for start in (count, count - 1):
                left[0] = start
                with monkeypatch.context() as patch:
                    patch.setattr(OnnxSession, "forward", forward)
                    stream = pipeline.stream(PROMPT, OPTIONS)
                    with pytest.raises(KeyboardInterrupt):
                        list(stream)
                assert list(stream) == []
                assert stream.result is None
            unharmed(pipeline)

    def test_ctrl_c_inside_a_rollback(
        self,
        pipeline: Pipeline,
        unharmed: Callable[[Pipeline], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Of the target and of the draft model, which went back but did not hear of it."""
        honest, left = OnnxSession.rollback, [0]

        def rollback(self: OnnxSession, length: int) -> None:
            honest(self, length)
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(OnnxSession, "rollback", rollback)
            pipeline.generate(LONG[:40], OPTIONS)
            left[0] = 0
            pipeline.generate(PROMPT, OPTIONS)
            rollbacks = -left[0]
            assert rollbacks >= 1
            for count in range(1, rollbacks + 1):
                left[0] = 0
                pipeline.generate(LONG[:40], OPTIONS)
                left[0] = count
                with pytest.raises(KeyboardInterrupt):
                    pipeline.generate(PROMPT, OPTIONS)
                unharmed(pipeline)


class TestOneAtATime:
    def test_a_second_one_is_refused(self, pipeline: Pipeline) -> None:
        expected = pipeline.generate(PROMPT, OPTIONS).token_ids
        first = pipeline.stream(PROMPT, OPTIONS)
        events = [next(first)]
        second = pipeline.stream(LONG[:40], OPTIONS)
        with pytest.raises(StateError, match="close"):
            next(second)
        with pytest.raises(StateError, match="close"):
            pipeline.generate(PROMPT, OPTIONS)
        assert second.result is None
        events += first
        assert [event.token for event in events] == expected

    def test_one_that_was_not_read_takes_nothing(self, pipeline: Pipeline) -> None:
        first = pipeline.stream(PROMPT, OPTIONS)
        other = pipeline.generate(PROMPT, OPTIONS)
        assert [event.token for event in first] == other.token_ids


class TestWhileThePromptIsRead:
    """A request that ends when the fifth chunk of its prompt has been read, at the latest."""

    at_the_fifth: Callable[[], object]

    @pytest.fixture
    def chunks(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Lengths of the target's chunks so far."""
        monkeypatch.setattr(OnnxSession, "prefill_chunk", 50)
        honest, seen = OnnxSession.prefill, list[int]()

        def prefill(session: OnnxSession, tokens: Any, on_chunk: Any = None) -> None:
            def counted(done: int, total: int) -> None:
                seen.append(done)
                if len(seen) == 5:
                    self.at_the_fifth()
                on_chunk(done, total)

            honest(session, tokens, counted if on_chunk else None)

        monkeypatch.setattr(OnnxSession, "prefill", prefill)
        return seen

    def test_cancel(
        self, pipeline: Pipeline, chunks: list[int], unharmed: Callable[[Pipeline], None]
    ) -> None:
        stream = pipeline.stream(LONG, OPTIONS)
        other = threading.Thread(target=stream.cancel)
        self.at_the_fifth = lambda: (other.start(), other.join())
        self.ends_with(stream, "cancelled")
        assert len(chunks) == 5
        unharmed(pipeline)

    def test_timeout(
        self,
        pipeline: Pipeline,
        chunks: list[int],
        unharmed: Callable[[Pipeline], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        hour = 3600.0
        options = GenerateOptions(max_new_tokens=24, timeout_s=hour)
        with monkeypatch.context() as patch:
            later = (pipeline.engine, "_clock", lambda: perf_counter() + hour)
            self.at_the_fifth = lambda: patch.setattr(*later)
            self.ends_with(pipeline.stream(LONG, options), "timeout")
        assert len(chunks) == 5
        unharmed(pipeline)

    @staticmethod
    def ends_with(stream: Any, reason: str) -> None:
        assert list(stream) == []
        assert (stream.result.finish_reason, stream.result.text) == (reason, "")
        assert stream.metrics.target_passes == 0
        assert stream.metrics.ttft_s == 0


class TestBounds:
    @pytest.mark.parametrize("draft", ["auto", "tree", "recycle", "none"])
    @pytest.mark.parametrize("max_context", [1, 2, 10])
    def test_a_prompt_that_fills_the_context(
        self, bundle: Path, draft: str, max_context: int
    ) -> None:
        with Pipeline.open(bundle, threads=1, drafter=draft, max_context=max_context) as pipeline:
            full = pipeline.generate(LONG[:max_context], OPTIONS)
            assert (len(full.token_ids), full.finish_reason) == (1, "length")
            one = pipeline.generate([5], OPTIONS)
            assert len(one.token_ids) == max_context
            with pytest.raises(PromptTooLong, match=f"{max_context + 1} tokens"):
                pipeline.stream(LONG[: max_context + 1])

    @pytest.mark.parametrize("draft", ["model", "tree", "hybrid"])
    def test_text_beyond_the_draft_models_context(
        self, opened: Callable[..., Pipeline], draft: str
    ) -> None:
        sampling = SamplingParams(temperature=0.9, seed=3)
        for prompt in (PROMPT, LONG[:47], LONG[:48], LONG[:300]):
            options = GenerateOptions(70, sampling, ignore_eos=True)
            expected = opened(drafter="none").generate(prompt, options).token_ids
            found = opened(drafter=draft, draft_length=4).generate(prompt, options)
            assert found.token_ids == expected
            # The draft sees the beginning and the end of a text beyond its own context.
            assert found.metrics.drafted_tokens > 0

    def test_a_draft_that_sees_less_drafts_on(
        self, bundle: Path, opened: Callable[..., Pipeline]
    ) -> None:
        options = GenerateOptions(100, ignore_eos=True)
        expected = opened(drafter="none").generate(LONG[:60], options).token_ids
        with Pipeline.open(
            bundle, threads=1, drafter="model", draft_length=3, draft_context=40
        ) as pipeline:
            found = pipeline.generate(LONG[:60], options)
            width = pipeline.target.info.kv_bytes_per_token
            assert pipeline.plan["kv_bytes"] == width * (CONTEXT + 40)
        assert found.token_ids == expected
        assert found.metrics.drafted_tokens > 0
        with pytest.raises(InputError, match="draft_context"):
            Pipeline.open(bundle, draft_context="many")  # type: ignore[arg-type]

    def test_what_a_stop_string_held_back_is_shown_at_the_end_of_the_context(
        self, bundle: Path
    ) -> None:
        with Pipeline.open(bundle, threads=1, drafter="none", max_context=12) as pipeline:
            text = pipeline.generate(PROMPT, OPTIONS).text
            stop = text[-1] + "never"
            stream = pipeline.stream(PROMPT, GenerateOptions(stop=(stop,), ignore_eos=True))
            assert "".join(event.text for event in stream) == text

    def test_cache_bytes_are_those_of_the_sessions(self, bundle: Path) -> None:
        with Pipeline.open(bundle, threads=1) as pipeline:
            target = pipeline.target.info.kv_bytes_per_token
            # The draft is as wide as the target here.
            expected = target * (CONTEXT + DRAFT_CONTEXT)
            assert pipeline.plan["kv_bytes"] == expected
        with Pipeline.open(bundle, threads=1, kv_memory=expected) as pipeline:
            assert pipeline.plan["max_context"] == CONTEXT
        with Pipeline.open(bundle, threads=1, kv_memory=expected - 1) as pipeline:
            assert pipeline.plan["max_context"] == CONTEXT - 1
        with pytest.raises(MemoryBudgetError, match=f"--max-context {CONTEXT - 1}"):
            Pipeline.open(bundle, threads=1, kv_memory=expected - 1, max_context=CONTEXT)


class TestPrompts:
    def test_numpys_integers_are_integers(self, opened: Callable[..., Pipeline]) -> None:
        pipeline = opened(drafter="lookup")
        expected = pipeline.generate(PROMPT * 3, OPTIONS).token_ids
        found = pipeline.generate(np.array(PROMPT * 3, np.int32), OPTIONS)  # type: ignore[arg-type]
        assert json.loads(json.dumps(found.token_ids)) == expected

    @pytest.mark.parametrize("prompt", [["a"], [1.5], None, 7])
    def test_what_is_no_prompt(self, opened: Callable[..., Pipeline], prompt: Any) -> None:
        with pytest.raises(InputError, match=r"expected text or|expected one; for several, call"):
            opened(drafter="none").stream(prompt)

    @pytest.mark.parametrize("token", [-1, 10_000])
    def test_a_token_outside_the_vocabulary(
        self, opened: Callable[..., Pipeline], token: int
    ) -> None:
        with pytest.raises(InputError, match="expected 0 to"):
            opened(drafter="none").stream([5, token])


def test_a_draft_larger_than_its_target_is_refused(bundle: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped"
    shutil.copytree(bundle, swapped)
    manifest = json.loads((swapped / "manifest.json").read_text())
    roles = manifest["roles"]
    roles["target"], roles["draft"] = roles["draft"], roles["target"]
    (swapped / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="is larger than the target"):
        Pipeline.open(swapped)


def test_batch_invariance_lets_no_drafter_branch(bundle: Path) -> None:
    with pytest.raises(InputError, match="'tree' branches"):
        Pipeline.open(bundle, drafter="tree", draft_length=3, batch_invariant=True)
    shapes = {True: set(), False: set()}
    for invariant in shapes:
        with Pipeline.open(
            bundle, drafter="recycle", draft_length=12, batch_invariant=invariant
        ) as pipeline:
            propose = pipeline.engine.drafter.propose

            def spy(*args: Any, shapes=shapes[invariant], propose=propose) -> Any:
                draft = propose(*args)
                shapes.add(draft.tree.is_chain)
                return draft

            pipeline.engine.drafter.propose = spy  # type: ignore[method-assign]
            pipeline.generate(PROMPT, GenerateOptions(max_new_tokens=300, ignore_eos=True))
    assert shapes[True] == {True}
    assert False in shapes[False]


# -- streams and threads ------------------------------------------------------------------------


def read_apart(stream: Stream) -> tuple[threading.Thread, list[Emission], list[BaseException]]:
    """A thread that reads a stream, what it got, and what it raised."""
    got: list[Emission] = []
    raised: list[BaseException] = []

    def read() -> None:
        try:
            got.extend(stream)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, got, raised


@pytest.mark.parametrize("drafter", ["none", "model"])
def test_a_stream_is_closed_from_another_thread(
    opened: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, drafter: str
) -> None:
    pipeline = opened(drafter=drafter)
    expected = pipeline.generate(PROMPT, OPTIONS)
    inside, go_on = threading.Event(), threading.Event()
    honest = OnnxSession.forward

    def slow(self: OnnxSession, *args: Any, **named: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return honest(self, *args, **named)

    monkeypatch.setattr(OnnxSession, "forward", slow)
    stream = pipeline.stream(PROMPT, OPTIONS)
    thread, got, raised = read_apart(stream)
    assert inside.wait(60)
    threading.Timer(0.05, go_on.set).start()
    stream.close()  # in the middle of a pass
    assert go_on.is_set(), "it did not wait for the pass"
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert (got, raised, stream.result) == ([], [], None)
    assert list(stream) == []
    stream.close()
    monkeypatch.undo()
    assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected.token_ids


def test_a_stream_is_closed_between_the_events_of_another_thread(
    opened: Callable[..., Pipeline],
) -> None:
    pipeline = opened(drafter="none")
    stream = pipeline.stream(PROMPT, OPTIONS)
    first = next(stream)
    thread = threading.Thread(target=stream.close)
    thread.start()
    thread.join(LIMIT_S)
    assert first.token == pipeline.generate(PROMPT, OPTIONS).token_ids[0]
    assert list(stream) == []


def test_a_stream_is_closed_by_a_signal_amid_its_own_round(
    opened: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened(drafter="none")
    stream = pipeline.stream(PROMPT, OPTIONS)
    next(stream)
    honest = OnnxSession.forward

    def signalled(self: OnnxSession, *args: Any, **named: Any) -> Any:
        stream.close()
        return honest(self, *args, **named)

    monkeypatch.setattr(OnnxSession, "forward", signalled)
    assert list(stream) == []
    monkeypatch.undo()
    assert len(pipeline.generate(PROMPT, OPTIONS).events) == 24


def at_each_line(stream: Stream, do: Callable[[int], None]) -> Callable[..., Any]:
    """A tracer that calls ``do`` with the number of each line that ``next(stream)`` reaches."""

    def line(frame: Any, event: str, arg: object) -> Any:
        if event == "line":
            do(frame.f_lineno)
        return line

    return lambda frame, event, arg: line if frame.f_code is Stream.__next__.__code__ else None


def test_a_stream_is_closed_by_a_signal_at_any_line(opened: Callable[..., Pipeline]) -> None:
    """A handler runs between two instructions, also while the lock is held outside of a round."""
    pipeline = opened(drafter="none")
    seen: dict[int, None] = {}
    whole = pipeline.stream(PROMPT, OPTIONS)
    sys.settrace(at_each_line(whole, seen.setdefault))
    try:
        assert len(list(whole)) == 24
    finally:
        sys.settrace(None)
    assert len(seen) > 5
    for place in seen:
        stream, ended = pipeline.stream(PROMPT, OPTIONS), threading.Event()

        def close(line: int, place: int = place, stream: Stream = stream) -> None:
            if line == place:
                stream.close()

        def read(stream: Stream = stream, close: Any = close, ended: Any = ended) -> None:
            sys.settrace(at_each_line(stream, close))
            try:
                list(stream)
            finally:
                sys.settrace(None)
                ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert ended.wait(LIMIT_S), f"close() at line {place} waits for itself"
        assert stream.result is None
        assert len(pipeline.generate(PROMPT, OPTIONS).events) == 24


def test_two_threads_may_read_one_stream(opened: Callable[..., Pipeline]) -> None:
    pipeline = opened(drafter="none")
    stream = pipeline.stream(PROMPT, OPTIONS)
    readers = [read_apart(stream) for _ in range(2)]
    for thread, _, raised in readers:
        thread.join(LIMIT_S)
        assert raised == []
    assert stream.result is not None
    assert sum(len(got) for _, got, _ in readers) == 24


def test_events_of_two_readers_stay_in_order(opened: Callable[..., Pipeline]) -> None:
    """A second thread asks for an event before the first one has kept its own."""
    pipeline = opened(drafter="model", draft_length=4)
    expected = pipeline.generate(PROMPT, OPTIONS)
    assert expected.metrics.block_efficiency > 1
    stream = pipeline.stream(PROMPT, OPTIONS)
    kept = Stream.__next__.__code__.co_firstlineno
    source = inspect.getsource(Stream.__next__).splitlines()
    kept += next(n for n, line in enumerate(source) if "_events.append" in line)
    others = []

    def overtake(line: int) -> None:
        if line == kept:
            other = threading.Thread(target=next, args=(stream, None), daemon=True)
            other.start()
            other.join(0.05)
            others.append(other)

    sys.settrace(at_each_line(stream, overtake))
    try:
        list(stream)
    finally:
        sys.settrace(None)
    for other in others:
        other.join(LIMIT_S)
    assert stream.result is not None
    assert stream.result.token_ids == expected.token_ids


# -- options of another type --------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["ab", ["ab"], ("ab",), iter(["ab"])])
def test_one_stop_string_is_one_and_not_its_characters(stop: Any) -> None:
    assert GenerateOptions(stop=stop).stop == ("ab",)


def opened_with(**options: Any) -> Callable[[Pipeline], object]:
    return lambda _: Pipeline.open("demo", **options)


WRONG: dict[str, Callable[[Pipeline], object]] = {
    "max_context is '100': expected": opened_with(max_context="100"),
    "max_context is 1.5: expected": opened_with(max_context=1.5),
    "kv_memory is '1MX': expected a size": opened_with(kv_memory="1MX"),
    "kv_memory is 'auto': expected a size such as 2GB": opened_with(kv_memory="auto"),
    "memory is '1XB': expected a size such as 2GB, or auto": opened_with(memory="1XB"),
    "memory is 1.5: expected": opened_with(memory=1.5),
    "threads is '2': expected": opened_with(threads="2"),
    "gpu_layers is '2': expected": opened_with(gpu_layers="2"),
    "drafter is None: expected": opened_with(drafter=None),
    "draft is 5: expected": opened_with(draft=5),
    "plan is 3: expected": opened_with(plan=3),
    "timeout is '3' s: expected": lambda _: GenerateOptions(timeout_s="3"),  # type: ignore[arg-type]
    "max_new_tokens is None: expected": lambda _: GenerateOptions(max_new_tokens=None),  # type: ignore[arg-type]
    "logit_bias of token 'a': expected": lambda _: SamplingParams(logit_bias={"a": 1}),  # type: ignore[dict-item]
    "stop is b'ab': expected a text": lambda _: GenerateOptions(stop=b"ab"),  # type: ignore[arg-type]
    "stop is [1]: expected a text": lambda _: GenerateOptions(stop=[1]),  # type: ignore[arg-type]
    "stop is None: expected a text": lambda _: GenerateOptions(stop=None),  # type: ignore[arg-type]
    "max_new_tokens is '8': expected": lambda p: p.generate(PROMPT, max_new_tokens="8"),  # type: ignore[arg-type]
    "max_new_tokens is 8.0: expected": lambda p: p.generate(PROMPT, max_new_tokens=8.0),  # type: ignore[arg-type]
    "logprobs is 1.5: expected": lambda _: GenerateOptions(logprobs=1.5),  # type: ignore[arg-type]
    "draft_length is '2': expected": lambda _: GenerateOptions(draft_length="2"),  # type: ignore[arg-type]
    "sampling is {'seed': 1}: expected": lambda _: GenerateOptions(sampling={"seed": 1}),  # type: ignore[arg-type]
    "temperature '0.8': expected": lambda _: SamplingParams(temperature="0.8"),  # type: ignore[arg-type]
    "top_p None: expected": lambda _: SamplingParams(top_p=None),  # type: ignore[arg-type]
    "top_k '5': expected": lambda _: SamplingParams(top_k="5"),  # type: ignore[arg-type]
    "logit_bias [1]: expected": lambda _: SamplingParams(logit_bias=[1]),  # type: ignore[arg-type]
    "logit_bias of token 1 '2': expected": lambda _: SamplingParams(logit_bias={1: "2"}),  # type: ignore[dict-item]
    "the prompt is bytes: expected text": lambda p: p.generate(b"def"),  # type: ignore[arg-type]
    "the prompt: expected text": lambda p: p.generate({"role": "user"}),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", WRONG)
def test_options_of_another_type_are_refused_by_name(
    opened: Callable[..., Pipeline], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        WRONG[message](opened(drafter="none"))
    assert str(caught.value).startswith(message)


def test_bytes_like_prompts_are_refused_too(opened: Callable[..., Pipeline]) -> None:
    for prompt in (bytearray(b"def"), memoryview(b"def")):
        with pytest.raises(InputError, match="the prompt is bytes"):
            opened(drafter="none").generate(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "x2: drafter hybrid, draft 'draft', 8192 tokens of context>"),
        ({"drafter": "lookup"}, "x2: drafter lookup, 8192 tokens of context>"),
        ({"draft": "demo", "max_context": 512}, "draft 'target', 512 tokens of context>"),
        ({"provider": "CPUExecutionProvider"}, "onnx CPUExecutionProvider x2: drafter"),
    ],
)
def test_a_pipeline_is_shown_in_one_line(options: dict[str, Any], shown: str) -> None:
    with Pipeline.open("demo", threads=2, plan="none", **options) as pipeline:
        line = repr(pipeline)
        assert line.startswith("<Pipeline 'demo' on onnx ")
        assert shown in line
        assert "\n" not in line
    assert repr(pipeline) == "<Pipeline 'demo', closed>"


def test_a_draft_of_another_folder_is_shown_by_its_path(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "other")
    with Pipeline.open(bundle, draft=tmp_path / "other", plan="none") as pipeline:
        assert f"draft '{tmp_path / 'other' / 'target'}" in repr(pipeline)
