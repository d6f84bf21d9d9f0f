"""A device that fails in the middle of a text, or at load: the text goes on, and is the same."""

import os
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tiny_gguf import write_tiny_gguf

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.bundle import manifest
from edgedec.decoding.engine import Engine
from edgedec.decoding.session import Model
from edgedec.errors import InputError, MemoryBudgetError, PassFailed, RuntimeUnavailable
from edgedec.loading import build
from edgedec.loading.build import OpenOptions, OpenPair
from edgedec.loading.opening import Configurations, placed, unplanned_configurations
from edgedec.loading.sources import Models
from edgedec.records.place import Place
from edgedec.records.plan import Plan
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.session import OnnxSession

PROMPT = "def fibonacci(n):\n"
# Batch invariance, so that nothing but the failure can change a quantised text.
OPEN = OpenOptions(batch_invariant=True, draft_length=3, threads=1)
OPTIONS = GenerateOptions(max_new_tokens=40, sampling=SamplingParams(temperature=0.7, seed=3))


@pytest.fixture(scope="module")
def expected() -> list[int]:
    """What plain decoding writes."""
    with Pipeline.open("demo", OPEN, drafter="none") as pipeline:
        return pipeline.generate(PROMPT, OPTIONS).token_ids


class Failing:
    """Passes of ONNX sessions fail from the n-th on, ``times`` times."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int, times: int = 1) -> None:
        honest, self.left, self.times = OnnxSession.forward, after, times

        def forward(session: OnnxSession, *args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0 and self.times > 0:
                self.times -= 1
                raise PassFailed("the device is gone")
            return honest(session, *args, **named)

        patch.setattr(OnnxSession, "forward", forward)


def test_a_bundle_is_read_and_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    honest = manifest.sha256_of_stream

    def counted(stream: BinaryIO) -> str:
        read.append(os.fstat(stream.fileno()).st_ino)
        return honest(stream)

    monkeypatch.setattr(manifest, "sha256_of_stream", counted)
    with Pipeline.open("demo", drafter="none"):
        assert read
        assert len(read) == len(set(read))


@pytest.mark.parametrize("after", [0, 1, 2, 3, 7, 12])
def test_the_text_goes_on_after_a_pass_fails_whichever_it_is(after, expected, monkeypatch, caplog):
    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        Failing(monkeypatch, after)
        result = pipeline.generate(PROMPT, OPTIONS)
        assert result.token_ids == expected
        assert result.plan["drafter"] == "text"
        (note,) = pipeline.notes
        assert "the device is gone" in note
        assert "drafting without a model" in note
        assert [record.message for record in caplog.records if record.name == "edgedec"] == [note]
        # Said once: the next text is decoded in the new place without a word.
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected
        assert pipeline.notes == [note]


def test_a_second_failure_leaves_plain_decoding(expected, monkeypatch):
    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        Failing(monkeypatch, 5, times=2)
        result = pipeline.generate(PROMPT, OPTIONS)
        assert result.token_ids == expected
        assert result.plan["drafter"] == "none"
        assert len(pipeline.notes) == 2


def test_when_no_way_is_left_the_failure_is_raised(monkeypatch):
    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        Failing(monkeypatch, 5, times=99)
        with pytest.raises(PassFailed, match="the device is gone"):
            pipeline.generate(PROMPT, OPTIONS)


def test_a_twin_that_starts_the_text_anew_is_caught(expected, monkeypatch):
    """The identity above can fail: here the second engine forgets what was written."""
    honest = Engine.run

    def forgetful(self: Engine, request: Any, metrics: Any) -> Iterator[Any]:
        prompt = request.prompt
        return honest(self, replace(request, prompt=prompt[:6]) if len(prompt) > 8 else request,
                      metrics)  # fmt: skip

    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        Failing(monkeypatch, 7)
        monkeypatch.setattr(Engine, "run", forgetful)
        assert pipeline.generate(PROMPT, OPTIONS).token_ids != expected


def test_an_abandoned_text_after_a_failure_leaves_the_pipeline_usable(expected, monkeypatch):
    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        Failing(monkeypatch, 7)
        stream = pipeline.stream(PROMPT, OPTIONS)
        while not pipeline.notes:
            next(stream)
        stream.close()
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected


def test_a_planned_place_that_cannot_be_loaded_gives_way(caplog):
    gone = OPEN.changed(providers=("NoSuchProvider",))
    ways = [("a plan", gone), ("the next plan", OPEN.changed(drafter="lookup"))]
    pipeline = Pipeline(Configurations(Models.find("demo"), ways))
    with pipeline:
        assert pipeline.plan["drafter"] == "lookup"
        assert "NoSuchProvider" in pipeline.notes[0]
        assert len(caplog.records) == 1


def test_what_the_user_asked_for_does_not_give_way():
    with pytest.raises(RuntimeUnavailable, match="NoSuchProvider"):
        Pipeline.open("demo", providers=("NoSuchProvider",))


def test_a_mistake_is_no_failure_of_a_place():
    ways = [("a", OPEN.changed(drafter="nonsense")), ("b", OPEN)]
    with pytest.raises(InputError, match="nonsense"):
        Pipeline(Configurations(Models.find("demo"), ways))


def test_a_plan_puts_models_in_their_places():
    plan = Plan(
        Place("onnx", threads=2, cores=(0, 1)),
        Place("gguf", device="Vulkan0"),
        "tree",
        draft_length=8,
        depth=4,
    )
    options = placed(OpenOptions(batch_invariant=False, kv_memory=1 << 20), plan, 256)
    assert (options.load.threads, options.load.cores, options.format) == (2, (0, 1), "onnx")
    assert (options.drafter, options.draft_length, options.draft_depth) == ("tree", 8, 4)
    assert (options.draft_format, options.context_limit) == ("gguf", 256)
    assert options.draft_load is not None
    assert options.draft_load.device == "Vulkan0"
    assert options.draft_load.threads is None
    assert (options.load.batch_invariant, options.kv_memory) == (False, 1 << 20)


def test_a_planned_draft_of_another_runtime_decodes_the_same_text(expected):
    plan = Plan(Place("onnx", threads=1), Place("onnx", threads=1), "model", draft_length=2)
    with Pipeline(
        Configurations(Models.find("demo"), [("a plan", placed(OPEN, plan, 256))])
    ) as pipeline:
        assert pipeline.generate(PROMPT, OPTIONS).token_ids == expected
        assert pipeline.plan["draft_length"] == 2


def test_ways_without_a_plan_end_on_the_processor():
    ways = unplanned_configurations(OpenOptions(drafter="model", device="Vulkan0", gpu_layers=-1))
    assert [options.drafter for _, options in ways] == ["model", "text", "none"]
    assert (ways[-1][1].load.device, ways[-1][1].load.own) == ("cpu", {})
    assert [
        options.drafter for _, options in unplanned_configurations(OpenOptions(drafter="lookup"))
    ] == [
        "lookup",
        "none",
    ]


@pytest.mark.parametrize("role", [0, 1])
def test_a_device_that_fails_in_a_commit_loses_no_token(role, expected, monkeypatch):
    """Of the target, whose commit comes first in a round, and of the draft."""
    honest, left = OnnxSession.commit, [8 + role]

    def commit(session: OnnxSession, path: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise PassFailed("the device is gone")
        honest(session, path)

    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        monkeypatch.setattr(OnnxSession, "commit", commit)
        result = pipeline.generate(PROMPT, OPTIONS)
        assert left[0] <= 0
        assert len(pipeline.notes) == 1
        assert result.token_ids == expected
        with Pipeline.open("demo", OPEN, drafter="none") as plain:
            assert result.text == plain.generate(PROMPT, OPTIONS).text


def test_the_drafters_own_name_lets_it_draft():
    with Pipeline.open("demo", OPEN, drafter="hybrid") as pipeline:
        named = replace(OPTIONS, drafter="hybrid")
        assert pipeline.generate(PROMPT, named).metrics.drafted_tokens > 0


class Refusing:
    """A memory limit that no model fits in unless it is opened with ``repack`` off."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.loaded: list[weakref.ref[Model]] = []
        self.tried: list[OpenOptions] = []
        self.left: list[int] = []
        load, assemble = registry.load, build.assemble

        def loads(*given: Any) -> Model:
            model = load(*given)
            self.loaded.append(weakref.ref(model))
            return model

        def assembles(models: Models, options: OpenOptions) -> OpenPair:
            self.tried.append(options)
            self.left.append(sum(one() is not None for one in self.loaded))
            opened = assemble(models, options)
            if options.load.own.get("repack") is False:
                return opened
            opened.close()
            kept = opened.target  # as an error's frames keep it
            raise MemoryBudgetError(f"too little memory for {kept.info.name}")

        patch.setattr(registry, "load", loads)
        patch.setattr(build, "assemble", assembles)


@pytest.mark.parametrize("drafts", [{}, {"draft": "self"}, {"draft": "self", "draft_repack": True}])
def test_weights_stay_in_the_files_order_where_memory_holds_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafts: dict[str, Any]
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q4_0")
    if drafts:
        drafts["draft"] = write_tiny_gguf(tmp_path / "draft.gguf", weights="Q4_0", layers=1)
    limit = Refusing(monkeypatch)
    with Pipeline.open(file, memory="4GB", plan="none", threads=1, **drafts) as pipeline:
        assert "repack=off" in pipeline.notes[0]
        assert pipeline.generate([3, 4, 5], max_new_tokens=4).token_ids
    assert [one.load.own.get("repack") for one in limit.tried] == [None, False]
    assert limit.left == [0, 0]  # the first ones were freed before others were loaded
    if drafts:
        assert limit.tried[1].of_draft().own["repack"] is drafts.get("draft_repack", False)


@pytest.mark.parametrize("given", [{"repack": True}, {"memory": None}])
def test_weights_stay_as_the_user_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
    file, limit = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q4_0"), Refusing(monkeypatch)
    with pytest.raises(MemoryBudgetError, match="too little memory for tiny-llama"):
        Pipeline.open(file, **{"memory": "4GB", "plan": "none", "threads": 1, **given})
    assert len(limit.tried) == 1


def test_other_runtimes_have_nothing_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Refusing(monkeypatch)
    with pytest.raises(MemoryBudgetError):
        Pipeline.open("demo", memory="4GB", plan="none")
    assert len(limit.tried) == 1
