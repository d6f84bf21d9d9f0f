"""Plans that a pipeline follows: the last one made here, a file, one within a memory limit."""

import dataclasses
import functools
import json
import logging
import tempfile
from pathlib import Path

import pytest
import tiny_bundles
from tiny_models import tiny_checkpoint

from edgedec import GenerateOptions, OpenOptions, Pipeline
from edgedec._support.fields import to_json
from edgedec.errors import InputError, PlanError
from edgedec.loading.sources import Models
from edgedec.planning import decisions, plan_files, remembered, streaming
from edgedec.profiling.store import Identity, identity
from edgedec.records.place import Place
from edgedec.records.plan import SCHEMA, Candidate, Decision, Plan, Prediction

PLACE = Place("onnx", threads=1)
CHOSEN = Plan(PLACE, PLACE, "model", draft_length=2)


@functools.cache
def pair() -> Path:
    with tempfile.TemporaryDirectory() as name:
        made = [tiny_checkpoint(Path(name) / one, max_position_embeddings=8192) for one in "ab"]
        return tiny_bundles.exact(*made)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def known() -> Identity:
    return identity(Models.find(pair()))


@pytest.fixture
def decision(known: Identity) -> Decision:
    candidate = Candidate(CHOSEN, Prediction(100.0, 0.1, 1 << 20, 2.0))
    return Decision(
        schema=SCHEMA,
        machine=dict(known.machine),
        bundle=known.bundle,
        versions=dict(known.versions),
        memory=None,
        max_context=300,
        chosen=candidate,
        fallbacks=(Plan(PLACE),),
        candidates=(candidate,),
        reasons=("It is a test.",),
    )


def opened(**changes: object) -> dict[str, object]:
    with Pipeline.open(pair(), OpenOptions(), **changes) as pipeline:
        return {name: pipeline.plan[name] for name in ("drafter", "draft_length", "max_context")}


PLANNED = {"drafter": "model", "draft_length": 2, "max_context": 300}


def test_a_plan_that_was_made_is_followed_until_told_otherwise(decision, known) -> None:
    usual = opened()
    assert usual["drafter"] == "hybrid"
    assert remembered.remember(decision, known)
    assert opened() == PLANNED
    assert opened(plan="none") == usual
    # Whoever chooses for himself is not overruled.
    assert opened(drafter="lookup")["drafter"] == "lookup"
    assert opened(threads=1)["drafter"] == "hybrid"


def in_force(**changes: object) -> tuple[object, object]:
    with Pipeline.open(pair(), OpenOptions(), **changes) as pipeline:
        return pipeline.plan["plan"], pipeline.plan["no_plan"]


def test_the_plan_in_force_is_named_and_so_is_the_reason_for_none(
    decision, known, tmp_path
) -> None:
    assert in_force() == (None, "none was made for these models here")
    remembered.remember(decision, known)
    assert in_force() == (CHOSEN.label, None)
    assert in_force(plan="none") == (None, "--plan none")
    assert in_force(threads=1, drafter="lookup") == (None, "--drafter, --threads given")
    tree = dataclasses.replace(decision.chosen, plan=Plan(PLACE, PLACE, "tree", 4, 2))
    remembered.remember(dataclasses.replace(decision, chosen=tree, fallbacks=()), known)
    assert in_force()[0] == "tree 4 on onnx cpu x1 + onnx cpu x1"
    named, why = in_force(batch_invariant=True)
    assert named is None
    assert "--batch-invariant" in str(why)


def test_plain_decoding_is_planned_too(decision, known) -> None:
    remembered.remember(decision, known)
    with Pipeline.open(pair(), drafter="none") as pipeline:
        assert pipeline.plan["drafter"] == "none"
        assert pipeline.plan["threads"] == 1
        assert pipeline.plan["max_context"] == 300


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"bundle": "other"}, "for other models"),
        ({"machine": {"cpu": "another"}}, "for another machine"),
        ({"versions": {"onnxruntime": "0.1"}}, "runtimes changed"),
        ({"max_context": 0}, "max_context is 0"),
        ({"schema": 99}, "expected a plan of version"),
    ],
)
def test_a_plan_that_holds_no_longer_is_said_once_and_forgotten(
    change, expected, decision, known, caplog
) -> None:
    remembered.remember(dataclasses.replace(decision, **change), known)
    with caplog.at_level(logging.WARNING, "edgedec"):
        assert opened()["drafter"] == "hybrid"
        assert opened()["drafter"] == "hybrid"
    (record,) = caplog.records
    assert expected in record.message
    assert record.message.count("edgedec plan") == 1


def test_a_plan_of_the_last_version_is_followed(decision, known, cache: Path) -> None:
    """It was kept as it is, without a hash."""
    remembered.remember(decision, known)
    (file,) = cache.glob("*.plan.json")
    file.write_text(json.dumps(to_json(decision)))
    assert opened() == PLANNED


def test_a_file_is_followed_and_one_of_another_machine_refused(
    decision, known, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    plan_files.save(decision, file)
    assert opened(plan=str(file)) == PLANNED
    plan_files.save(dataclasses.replace(decision, machine={"cpu": "another"}), file)
    with pytest.raises(PlanError, match="for another machine"):
        opened(plan=file)
    with pytest.raises(PlanError, match="cannot be read"):
        opened(plan=tmp_path / "missing.json")


def test_what_a_plan_decides_cannot_be_chosen_as_well(decision, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan_files.save(decision, file)
    with pytest.raises(InputError, match="--draft-length, --threads"):
        opened(plan=file, threads=2, draft_length=3)
    with pytest.raises(InputError, match="--memory"):
        opened(memory=1 << 30, threads=2)


def test_a_plan_whose_places_are_gone_gives_way(decision, known, caplog) -> None:
    gone = Place("onnx", provider="NoSuchProvider")
    plan = dataclasses.replace(decision.chosen, plan=Plan(gone, PLACE, "model", 2))
    remembered.remember(dataclasses.replace(decision, chosen=plan), known)
    with Pipeline.open(pair()) as pipeline:
        assert pipeline.plan["drafter"] == "none"
        text = pipeline.generate("def f(x):\n", GenerateOptions(max_new_tokens=8))
        assert len(text.token_ids) == 8
        assert "NoSuchProvider" in pipeline.notes[0]
    assert len(caplog.records) == 1


def test_nothing_is_remembered_where_nothing_can_be_kept(decision, known, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "file"))
    assert not remembered.remember(decision, known)
    assert opened()["drafter"] == "hybrid"


@pytest.mark.parametrize(
    ("plan", "changes"),
    [
        (CHOSEN, {"batch_invariant": True}),
        (Plan(PLACE, PLACE, "tree", 4, 2), {"batch_invariant": True}),
        (CHOSEN, {"kv_memory": 2_000_000}),
        (Plan(PLACE, PLACE, "model", 2, schedule="overlapped"), {"accept": "speculative"}),
        (CHOSEN, {"max_context": 200}),
        (CHOSEN, {"max_context": 1000}),
    ],
)
def test_a_plan_does_not_stand_in_the_way_of_what_is_asked_for(
    plan, changes, decision, known
) -> None:
    chosen = dataclasses.replace(decision.chosen, plan=plan)
    found = dataclasses.replace(decision, chosen=chosen, max_context=8192)
    remembered.remember(found, known)
    with Pipeline.open(pair(), **changes) as pipeline:
        assert pipeline.notes == []
        assert pipeline.generate("def f(x):\n", GenerateOptions(max_new_tokens=8)).token_ids
        asked = changes.get("max_context")
        assert asked in (None, pipeline.plan["max_context"])


def test_memory_and_a_plan_contradict(decision, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan_files.save(dataclasses.replace(decision, memory=1 << 27), file)
    with pytest.raises(InputError, match="--memory makes a plan"):
        opened(plan=file, memory=1 << 30)
    assert opened(plan="none", memory=1 << 32)["max_context"]
    with pytest.raises(InputError, match="holds 300 tokens"):
        opened(plan=file, max_context=301)
    assert opened(plan=file, max_context=200)["max_context"] == 200


MEMORY = 1 << 30


def refuse(*args: object, **more: object) -> Decision:
    raise AssertionError("a plan is made although a stored one fits")


@pytest.mark.parametrize("made_for", [None, MEMORY, MEMORY // 5 * 4 + 4])
def test_within_memory_the_plan_made_before_is_followed(
    decision, known, monkeypatch: pytest.MonkeyPatch, made_for: int | None
) -> None:
    remembered.remember(dataclasses.replace(decision, memory=made_for), known)
    monkeypatch.setattr(decisions, "plan", refuse)
    assert opened(memory=MEMORY) == PLANNED
    assert opened(memory=MEMORY, max_context=200)["max_context"] == 200


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"memory": MEMORY // 2}, {}),  # more memory may allow a better one
        ({"memory": None}, {"max_context": 301}),
    ],
)
def test_a_plan_to_stream_for_other_memory_is_made_anew_and_once(
    decision, known, monkeypatch: pytest.MonkeyPatch, changes: dict, asked: dict
) -> None:
    monkeypatch.setattr(streaming, "to_begin_with", lambda *_: 4_000_000)
    remembered.remember(dataclasses.replace(decision, **changes), known)
    asked_for: list[int] = []

    def make(models: Models, workload: object, *, memory: int) -> Decision:
        asked_for.append(memory)
        return dataclasses.replace(decision, memory=memory, max_context=400)

    monkeypatch.setattr(decisions, "plan", make)
    for _ in range(2):
        opened(memory=MEMORY, **asked)
    assert asked_for == [MEMORY]
    assert remembered.forget(known)
    opened(memory=MEMORY, **asked)
    assert asked_for == [MEMORY, MEMORY]


def test_a_plan_that_holds_more_than_the_limit_is_not_followed(
    decision, known, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(memory=MEMORY) != PLANNED
    monkeypatch.setattr(decisions, "plan", refuse)
    remembered.remember(decision, known)
    assert opened(memory=MEMORY) == PLANNED  # the control
    prediction = dataclasses.replace(decision.chosen.prediction, peak_bytes=MEMORY + 1)
    chosen = dataclasses.replace(decision.chosen, prediction=prediction)
    remembered.remember(dataclasses.replace(decision, chosen=chosen), known)
    assert opened(memory=MEMORY) != PLANNED
    monkeypatch.setattr(streaming, "to_begin_with", lambda *_: 4_000_000)
    with pytest.raises(AssertionError, match="a plan is made"):
        opened(memory=MEMORY)
