"""Overlapped drafting of real models: a second runtime in the process, a paced device, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import tiny_bundles
from kinds import in_full

from edgedec import GenerateOptions, OpenOptions, Pipeline, SamplingParams
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.policy import Fixed
from edgedec.export import ExportOptions
from edgedec.loading.engine import build_engine
from edgedec.loading.sources import Models
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.runtimes import registry
from edgedec.testing import PacedModel
from tests.virtual_time import VirtualClock

DRAFT = Path(__file__).resolve().parents[3] / "models" / "demo" / "draft"
PROMPTS = ["def fibonacci(n):\n", "class Stack:\n    def push(self, item):\n"]
OPEN = OpenOptions(batch_invariant=True, threads=1, draft_length=3)
SAMPLED = SamplingParams(temperature=0.8, seed=5)
TEXTS = [GenerateOptions(24), GenerateOptions(24, SAMPLED)]


def texts(pipeline: Pipeline) -> list[list[int]]:
    return [pipeline.generate(prompt, options).token_ids for prompt in PROMPTS for options in TEXTS]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    with Pipeline.open("demo", OPEN, drafter="none") as pipeline:
        return texts(pipeline)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's draft for llama.cpp."""
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    if not (DRAFT / "config.json").is_file():
        pytest.skip("the checkpoints are not in the wheel: needs a clone")
    out = tmp_path_factory.mktemp("draft") / "bundle"
    options = ExportOptions(DRAFT, out, formats=("gguf",), weights="q8_0", parity=False)
    (file,) = (tiny_bundles.kept(options) / "target").glob("*.gguf")
    return file


@pytest.mark.parametrize("length", in_full([3, "auto"]))
def test_a_draft_of_another_runtime(
    gguf: Path, expected: list[list[int]], length: int | str
) -> None:
    with Pipeline.open(
        "demo", OPEN, drafter="model", draft=gguf, draft_length=length, schedule="overlapped"
    ) as pipeline:
        # The first text: later the draft may rest, if it takes more than it gives.
        metrics = pipeline.generate(PROMPTS[0], TEXTS[0]).metrics
        assert metrics.ahead_s > 0
        assert texts(pipeline) == expected
        assert pipeline.engine.drafter.ahead.failure is None  # type: ignore[attr-defined]


@pytest.fixture
def beside() -> Iterator[Pipeline]:
    """The demo's target, and its draft held to another device's time."""
    clock = VirtualClock()
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline.open("demo", OPEN, drafter="none"))
        (source,) = Models.find("demo").sources["draft"]
        place = Place(source.format, threads=1)
        own = registry.load(source.format, source.path, place.load_options(batch_invariant=False))
        stack.callback(own.close)
        draft = PacedModel(own, lambda rows, context: 5e-4, clock)
        target = PacedModel(pipeline.target, lambda rows, context: 2e-3, clock)
        parts = DrafterParts(target.info.vocab_size, draft.open(256))
        plan = Plan(place, Place("paced", "draft"), "model", 3, schedule=OVERLAPPED)
        pipeline.engine = build_engine(plan, target.open(256), parts, clock, policy=Fixed(3))
        stack.callback(pipeline.engine.drafter.close)
        yield pipeline


def test_a_paced_device(beside: Pipeline, expected: list[list[int]]) -> None:
    assert texts(beside) == expected
    metrics = beside.generate(PROMPTS[0], TEXTS[0]).metrics
    assert metrics.block_efficiency > 1.0
    assert metrics.overlapped_s > 0.5 * metrics.ahead_s


def test_two_pipelines_at_once(expected: list[list[int]]) -> None:
    """Four threads that compute, two of them drafts; nobody disturbs anybody's text."""
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(Pipeline.open("demo", OPEN, drafter=draft, schedule="overlapped"))
            for draft in ("model", "hybrid")
        ]
        found: dict[int, list[list[int]]] = {}
        threads = [
            threading.Thread(
                target=lambda place=place: found.update({place: texts(pipelines[place])})
            )
            for place in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {0: expected, 1: expected}


def test_many_texts_begun_and_left() -> None:
    """Streams that are dropped anywhere, each followed by a whole text."""
    with Pipeline.open("demo", OPEN, drafter="model", schedule="overlapped") as pipeline:
        whole = pipeline.generate(PROMPTS[0], TEXTS[1]).token_ids
        for rounds in range(12):
            stream = pipeline.stream(PROMPTS[rounds % 2], TEXTS[0])
            for _ in range(rounds):
                next(stream)
            stream.close()
            if rounds % 4 == 3:
                assert pipeline.generate(PROMPTS[0], TEXTS[1]).token_ids == whole
