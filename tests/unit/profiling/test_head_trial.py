"""Measuring a head for real: places, chains drafted from the target's states, plans in turns."""

from __future__ import annotations

from pathlib import Path

import demo_head
import pytest

from edgedec import Pipeline
from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.hardware.clock import WallClock
from edgedec.loading.sources import Models
from edgedec.profiling import _child, _trial_child
from edgedec.profiling.children import MeasurementJob
from edgedec.profiling.places import PlaceFilter, sites
from edgedec.profiling.store import identity
from edgedec.profiling.trial import Outcome, TrialJob
from edgedec.records.place import Place
from edgedec.records.plan import Plan

CPU = Place("onnx", threads=1)
PLANS = (Plan(CPU), Plan(CPU, None, "head", 5), Plan(CPU, None, "headed", None))


@pytest.fixture(scope="module")
def models() -> Models:
    return Models.find(demo_head.bundle())


def test_it_is_found_and_has_places_on_the_processor(models: Models) -> None:
    assert list(models.sources) == ["target", "head"]
    found, _ = sites(models.sources, PlaceFilter())
    heads = [placed.place for placed in found if placed.source.role == "head"]
    assert heads
    assert all(place.cores is None and place.provider is None for place in heads)
    # Who names a draft wants that one, and other files are another pair.
    other = Models.find(demo_head.bundle(), "demo")
    assert list(other.sources) == ["target", "draft"]
    assert identity(other).bundle != identity(models).bundle


def test_its_passes_are_measured(models: Models) -> None:
    found = {}
    for role in ("target", "head"):
        (source,) = models.sources[role]
        files = tuple(map(str, source.files.values()))
        job = MeasurementJob(
            role, str(source.path), CPU, (5, 6, 7, 8), (8,), (1, 2), 0.02,
            files if role == "head" else (),
        )  # fmt: skip
        found[role], _ = _child.measure(job)
    assert found["target"].shows_states
    assert not found["head"].shows_states
    assert found["head"].seconds(1, 8) < found["target"].seconds(1, 8)
    assert found["head"].kv_bytes_per_token < found["target"].kv_bytes_per_token


def recorded(models: Models) -> Outcome:
    tokenizer = models.sources["target"][0].read_tokenizer()
    texts = ("def read_lines(path):", "class Reader:\n    def __init__(self, path):")
    prompts = tuple(tuple(tokenizer.encode(text)) for text in texts)
    job = TrialJob(models.target, None, PLANS, prompts, 24, finalists=3)
    return _trial_child.decode(job, models, WallClock())


def test_chains_are_recorded_from_true_states(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = recorded(models)
    assert not outcome.failed
    assert outcome.head_token_s > 0
    assert outcome.draft_token_s == 0
    plain, chain, auto = outcome.rounds
    assert plain is not None
    assert chain is not None
    assert auto is not None
    (drafts,) = chain.drafts
    assert drafts.source == "head"
    assert len(drafts.chances) == 5
    assert drafts.chances[0] > 0.5
    assert all(a >= b for a, b in zip(drafts.chances, drafts.chances[1:], strict=False))
    assert chain.tokens == pytest.approx(1 + drafts.accepted(5), rel=0.15)
    assert chain.draft_passes > 3
    # Broken twin: the head reads states of nothing.
    read = HeadDrafter.read
    monkeypatch.setattr(HeadDrafter, "read", lambda self, at, states: read(self, at, 0 * states))
    twin = recorded(models).rounds[1]
    assert twin is not None
    assert twin.drafts[0].chances[0] < 0.6 * drafts.chances[0]


def test_a_plan_with_a_head_is_followed(models: Models, tmp_path: Path) -> None:
    from edgedec.loading.opening import placed
    from edgedec.loading.options import OpenOptions

    # A fixed length, since by measured cost a short text may draft nothing.
    options = placed(OpenOptions(plan="none"), PLANS[2], None).changed(draft_length=2)
    with Pipeline.open(demo_head.bundle(), options) as pipeline:
        assert (pipeline.plan["drafter"], pipeline.plan["threads"]) == ("headed", 1)
        assert pipeline.generate("def f(", max_new_tokens=24).metrics.accepted_tokens > 0
