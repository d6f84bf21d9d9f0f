"""A pipeline opened by schedule and place: the text is plain decoding's, threads end."""

import os
import threading

import pytest
from running_threads import threads

from edgedec import GenerateOptions, OpenOptions, Pipeline, SamplingParams
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.records.load import LoadOptions

PROMPT = "def fibonacci(n):\n"
OPEN = OpenOptions(batch_invariant=True, threads=1, draft_length=3)
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores to keep threads on")
TEXTS = [
    GenerateOptions(max_new_tokens=48),
    GenerateOptions(max_new_tokens=48, sampling=SamplingParams(temperature=0.8, seed=5)),
]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    with Pipeline.open("demo", OPEN, drafter="none") as pipeline:
        return [pipeline.generate(PROMPT, options).token_ids for options in TEXTS]


def texts(pipeline: Pipeline) -> list[list[int]]:
    return [pipeline.generate(PROMPT, options).token_ids for options in TEXTS]


@pytest.mark.parametrize("draft", ["model", "hybrid"])
@pytest.mark.parametrize("length", [3, "auto"])
def test_overlapped_text_is_plain_text(draft, length, expected) -> None:
    before = threads()
    with Pipeline.open(
        "demo", OPEN, drafter=draft, draft_length=length, schedule="overlapped"
    ) as pipeline:
        assert texts(pipeline) == expected
        assert pipeline.plan["schedule"] == "overlapped"
        assert pipeline.plan["drafter"] == draft
    assert threads() <= before


@two_cores
@pytest.mark.parametrize("schedule", ["sequential", "overlapped"])
def test_models_on_cores_of_their_own(schedule, expected) -> None:
    draft_load = LoadOptions(threads=1, cores=(CORES[1],))
    before = os.sched_getaffinity(0)
    with Pipeline.open(
        "demo", OPEN, drafter="model", cores=(CORES[0],), draft_load=draft_load, schedule=schedule
    ) as pipeline:
        assert texts(pipeline) == expected
        stream = pipeline.stream(PROMPT, TEXTS[0])
        next(stream)
        # What the reader does meanwhile stays where it was.
        assert os.sched_getaffinity(0) == before
        stream.close()
    assert os.sched_getaffinity(0) == before


@two_cores
def test_a_round_runs_on_its_cores(monkeypatch) -> None:
    from edgedec.runtimes.onnx.session import OnnxSession

    honest, found = OnnxSession.forward, []

    def forward(session, *args, **named):
        found.append((threading.current_thread().name, frozenset(os.sched_getaffinity(0))))
        return honest(session, *args, **named)

    draft_load = LoadOptions(threads=1, cores=(CORES[1],))
    with Pipeline.open(
        "demo", OPEN, drafter="model", cores=(CORES[0],), draft_load=draft_load,
        schedule="overlapped",
    ) as pipeline:  # fmt: skip
        monkeypatch.setattr(OnnxSession, "forward", forward)
        pipeline.generate(PROMPT, TEXTS[0])
    mine = threading.current_thread().name
    assert {cores for name, cores in found if name == mine} == {frozenset({CORES[0]})}
    assert {cores for name, cores in found if name != mine} == {frozenset({CORES[1]})}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *(({"drafter": drafter, "schedule": "overlapped", "batch_invariant": False}, InputError,
           "expected model or hybrid") for drafter in ("lookup", "tree", "recycle", "none")),
        ({"schedule": "both"}, InputError, "no schedule 'both': expected one of sequential"),
        ({"drafter": "model", "schedule": "overlapped", "accept": "speculative"}, InputError,
         "would depend on time"),
        ({"cores": (4096,)}, RuntimeUnavailable, "expected some of"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, error, message) -> None:
    with pytest.raises(error, match=message):
        Pipeline.open("demo", **options)


def test_a_record_tells_what_was_thought_of_ahead() -> None:
    from edgedec.batch.run import record

    asked = {"drafter": "model", "schedule": "overlapped"}
    with Pipeline.open("demo", OPEN, **asked) as pipeline:
        found = record(pipeline.generate(PROMPT, TEXTS[0]))
    assert found["ahead_s"] >= found["overlapped_s"] > 0
    assert 0 <= found["reuse_rate"] <= 1
    with Pipeline.open("demo", OPEN, drafter="model") as pipeline:
        assert "ahead_s" not in record(pipeline.generate(PROMPT, TEXTS[0]))


def test_a_schedule_that_does_not_exist_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(InputError, match="no schedule 'sometimes': expected one of sequential, "):
        OpenOptions(schedule="sometimes")
