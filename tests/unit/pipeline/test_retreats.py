"""Retreats in the middle of a text, on both runtimes: the text stays the same."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_bundles
from kinds import each_once, in_full
from tiny_checkpoints import noisy_checkpoint
from tiny_gguf import write_tiny_gguf

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.errors import BundleError, MemoryBudgetError, StateError
from edgedec.loading.unloading import UnloadableModel
from edgedec.memory import guard as guarding
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.cache import KvCache

PROMPT = [5, 9, 23, 41, 9, 23, 41, 30, 9, 23]
# A text that must fit beside another's in a cache that is allocated for one text at a time.
LONGER = [5 + n % 40 for n in range(120)]
SAMPLERS = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=0.9, seed=3)}
DRAFTERS = ["hybrid", "tree", "text", "adaptive", "model", "recycle"]


@pytest.fixture(scope="module", params=["onnx", "gguf"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pair")
    if request.param == "onnx":
        checkpoints = (
            noisy_checkpoint(folder / "a"),
            noisy_checkpoint(folder / "b", num_hidden_layers=1),
        )
        return [tiny_bundles.exact(checkpoint) for checkpoint in checkpoints]
    pytest.importorskip("llama_cpp")
    return [write_tiny_gguf(folder / "a.gguf"), write_tiny_gguf(folder / "b.gguf", noise=0.3)]


Open = Callable[[str], Pipeline]


def open_pair(pair: list[Path], draft: str) -> Pipeline:
    needs = draft not in ("none", "text", "recycle")
    return Pipeline.open(
        pair[0], drafter=draft, draft=pair[1] if needs else None, draft_length=12,
        threads=1, memory=4_000_000_000, plan="none", max_context=240,
    )  # fmt: skip


@pytest.fixture(scope="module")
def opened(pair: list[Path]) -> Iterator[Open]:
    kept: dict[str, Pipeline] = {}

    def get(draft: str) -> Pipeline:
        if draft not in kept:
            kept[draft] = open_pair(pair, draft)
        return kept[draft]

    yield get
    for pipeline in kept.values():
        pipeline.close()


@pytest.fixture(scope="module")
def plain(opened: Open) -> Callable[[str], list[int]]:
    """Return a sampler's text without drafts, which all drafters are compared with."""

    def text(sampler: str) -> list[int]:
        tokens: list[int] = pressed(opened("none"), SAMPLERS[sampler], {}).token_ids
        return tokens

    return functools.cache(text)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "EVERY", 1)
    monkeypatch.setattr(guarding, "_PATIENCE", 1)


def pressed(pipeline: Pipeline, params: SamplingParams, wanted: dict[int, int]) -> Any:
    """Decode with memory that is short: from some tokens on, down to a level (-1 is the last)."""
    guard = pipeline._parts.guard
    assert guard is not None
    goal = 0

    def held() -> int:
        return 10**12 if guard._at < goal else 0

    guard._read, guard._left = held, 1
    stream = pipeline.stream(
        PROMPT, GenerateOptions(max_new_tokens=60, ignore_eos=True, sampling=params)
    )
    for number, _ in enumerate(stream):
        goal = wanted.get(number, goal) % len(guard._levels)
    assert stream.result is not None
    return stream.result


@pytest.mark.parametrize(("drafter", "sampler"), each_once(DRAFTERS, SAMPLERS, 3))
def test_the_text_is_plain_decodings_under_every_retreat(
    drafter: str, sampler: str, opened: Open, plain: Callable[[str], list[int]]
) -> None:
    expected = plain(sampler)
    pipeline = opened(drafter)
    guard = pipeline._parts.guard
    assert guard is not None
    names = [level.name for level in guard._levels]
    assert names[-1] == "plain decoding"
    assert ("draft model unloaded" in names) == (drafter in ("hybrid", "adaptive"))
    for level in range(1, len(names)):
        result = pressed(pipeline, SAMPLERS[sampler], {4: level, 20: 0, 45: level})
        assert result.token_ids == expected, names[level]
        events = result.metrics.memory.events
        met = [event.after for event in events if event.kind == "retreat"]
        assert met[:level] == names[1 : level + 1]
        assert any(event.kind == "return" for event in events)


def test_a_twin_that_gives_back_the_texts_own_cache_is_caught(
    opened: Open, pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if pair[0].suffix == ".gguf":
        pytest.skip("llama.cpp's cache is given back when it is empty only")
    honest = KvCache.trim
    expected = pressed(opened("none"), SAMPLERS["greedy"], {}).token_ids
    monkeypatch.setattr(KvCache, "trim", lambda cache, length: honest(cache, 0))
    assert pressed(opened("hybrid"), SAMPLERS["greedy"], {4: 2}).token_ids != expected


def test_a_twin_that_unloads_the_targets_cache_with_the_draft_is_caught(
    opened: Open, pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pressed(opened("none"), SAMPLERS["greedy"], {}).token_ids
    honest, pipelines = UnloadableModel.unload, []

    def unload(model: UnloadableModel) -> None:
        honest(model)
        pipelines[0].engine.target.rollback(0)

    def unloaded() -> Any:
        with open_pair(pair, "hybrid") as pipeline:
            pipelines[:] = [pipeline]
            assert pipeline._parts.guard is not None
            names = [level.name for level in pipeline._parts.guard._levels]
            at = names.index("draft model unloaded")
            return pressed(pipeline, SAMPLERS["greedy"], {4: at}).token_ids

    assert unloaded() == expected
    monkeypatch.setattr(UnloadableModel, "unload", unload)
    assert unloaded() != expected


@pytest.mark.parametrize("drafter", in_full(["hybrid", "model"]))
def test_a_draft_that_cannot_be_loaded_again_costs_one_line(
    drafter: str,
    opened: Open,
    pair: list[Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = pressed(opened("none"), SAMPLERS["greedy"], {}).token_ids
    draft = tmp_path / pair[1].name
    (shutil.copytree if pair[1].is_dir() else shutil.copy)(pair[1], draft)
    with open_pair([pair[0], draft], drafter) as pipeline:
        guard, target = pipeline._parts.guard, pipeline.engine.target
        assert guard is not None
        at = [level.weights for level in guard._levels].index(False)
        # A text that ends without the draft's weights, whose file is then gone.
        assert pressed(pipeline, SAMPLERS["greedy"], {4: at}).token_ids == expected
        (shutil.rmtree if draft.is_dir() else Path.unlink)(draft)
        again = pressed(pipeline, SAMPLERS["greedy"], {})
        assert again.token_ids == expected
        assert again.metrics.reused_tokens == len(PROMPT) - 1
        assert pipeline.engine.target is target
        assert pressed(pipeline, SAMPLERS["greedy"], {4: -1, 20: 0}).token_ids == expected
        (note,) = pipeline.notes
        assert "cannot be loaded again" in note
        assert note.endswith("going on without it")
        assert caplog.text.count("cannot be loaded again") == 1


@pytest.mark.parametrize("drafter", in_full(["hybrid", "model"]))
def test_a_text_goes_on_when_its_draft_cannot_be_loaded_again(
    drafter: str, opened: Open, pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pressed(opened("none"), SAMPLERS["greedy"], {}).token_ids

    def load(*args: object) -> None:
        raise BundleError("draft: no such file")

    def gone(pipeline: Pipeline) -> Any:
        guard = pipeline._parts.guard
        assert guard is not None
        at = [level.weights for level in guard._levels].index(False)
        return pressed(pipeline, SAMPLERS["greedy"], {4: at, 20: 0})

    with open_pair(pair, drafter) as pipeline:
        parts = pipeline._parts
        monkeypatch.setattr(registry, "load", load)
        result = gone(pipeline)
        assert result.token_ids == expected
        assert pipeline._parts is parts, "the target's cache is kept"
        assert len(pipeline.notes) == 1
        events = result.metrics.memory.events
        assert {event.after for event in events if event.kind == "return"} <= {
            "draft model unloaded"
        }
    monkeypatch.undo()
    # Broken twin: the guard returns without loading, and the pass finds the model unloaded.
    with open_pair(pair, drafter) as pipeline:
        monkeypatch.setattr(guarding, "EVERY", 1)
        monkeypatch.setattr(guarding, "_PATIENCE", 1)
        monkeypatch.setattr(guarding.MemoryGuard, "_restore", lambda self, at: True)
        with pytest.raises(StateError, match="unloaded"):
            gone(pipeline)


def test_the_next_text_begins_with_everything_again(opened: Open) -> None:
    pipeline = opened("hybrid")
    pressed(pipeline, SAMPLERS["greedy"], {4: -1})
    result = pressed(pipeline, SAMPLERS["greedy"], {})
    assert [event.kind for event in result.metrics.memory.events] == ["return"]
    assert result.metrics.drafted_tokens


def test_a_text_that_does_not_fit_leaves_the_pipeline_usable(opened: Open) -> None:
    pipeline = opened("hybrid")
    guard = pipeline._parts.guard
    assert guard is not None
    guard._read = lambda: 10**12
    with pytest.raises(MemoryBudgetError, match=r"give --memory \d+MB"):
        pipeline.generate(PROMPT, max_new_tokens=8)
    assert pressed(pipeline, SAMPLERS["greedy"], {}).token_ids


@pytest.mark.parametrize("draft", ["model", "none"])
def test_a_text_refused_beside_another_leaves_that_one_alone(opened: Open, draft: str) -> None:
    pipeline = opened(draft)
    options = GenerateOptions(40, ignore_eos=True)
    expected = pipeline.generate(PROMPT, options).token_ids
    stream = pipeline.stream(PROMPT, options)
    first = next(stream)
    record = stream.metrics.memory
    with pytest.raises(StateError, match="another text"):
        next(pipeline.stream(LONGER, GenerateOptions(80, ignore_eos=True)))
    assert [first.token, *(event.token for event in stream)] == expected
    assert stream.metrics.memory is record
    assert pipeline._parts.guard is not None
    assert pipeline._parts.guard._record is record
