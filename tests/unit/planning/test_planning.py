"""Decisions in files: whole or refused in one line, and for this machine and bundle alone."""

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import CPU, FIRST, GPU, MACHINE, SECOND, WORK, draft, profile, said, target

from edgedec._support.fields import to_json
from edgedec.errors import InputError, MemoryBudgetError, PlanError, ProfileError
from edgedec.loading.sources import Models
from edgedec.planning import decisions, plan_files
from edgedec.planning.choose import decide
from edgedec.planning.contenders import Trials
from edgedec.profiling import run as profiling
from edgedec.profiling.store import Identity
from edgedec.records.plan import OVERLAPPED, Decision, Plan
from edgedec.records.workload import Workload
from tests.conftest import REPOSITORY

PROFILE = profile(target(), draft(GPU))
DECISION = decide(PROFILE, WORK)
ALONE = to_json(Plan(CPU, None, "lookup", 3, schedule=OVERLAPPED))
HERE = Identity("demo", MACHINE, "a bundle", {})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    plan_files.save(DECISION, path)
    return path


def one_line(caught: pytest.ExceptionInfo[PlanError]) -> str:
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def test_a_decision_comes_back_as_it_was(stored):
    assert plan_files.read(stored) == DECISION
    plan_files.check(plan_files.read(stored), HERE, "it")


def test_nothing_is_left_behind_where_it_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(PlanError, match=r"cannot be written.*give another --out"):
        plan_files.save(DECISION, tmp_path / "no folder" / "plan.json")
    old = tmp_path / "plan.json"
    old.write_text("what was there")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(PlanError, match="No space left"):
        plan_files.save(DECISION, old)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    assert old.read_text() == "what was there"


def test_another_machine_is_named_with_its_difference(stored):
    there = dataclasses.replace(HERE, machine={"cpu": "another processor"})
    with pytest.raises(PlanError, match="for another machine") as caught:
        plan_files.check(DECISION, there, "it")
    assert "cpu was a processor, is another processor" in one_line(caught)


def test_a_message_says_nothing_to_the_terminal_and_what_to_do(stored):
    odd = dataclasses.replace(DECISION, machine={"cpu\x1b[2J\n": "\x1b[31m\n" * 1000})
    with pytest.raises(PlanError, match="for another machine") as caught:
        plan_files.check(odd, HERE, "it")
    one_line(caught)
    stored.unlink()
    with pytest.raises(PlanError, match="cannot be read") as caught:
        plan_files.load(stored, Models.find("demo"))
    assert one_line(caught).endswith("make one with `edgedec plan --out FILE`")
    with pytest.raises(PlanError, match="cannot be read"):
        plan_files.read(stored.parent)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_nothing_but_a_file_is_replaced(tmp_path, kind):
    path, kept = tmp_path / "plan.json", tmp_path / "kept"
    kept.write_text("what was there")
    made = {
        "link": lambda: path.symlink_to(kept),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    made[kind]()
    before = os.lstat(path)
    with pytest.raises(PlanError, match=r"not replaced: give another --out") as caught:
        plan_files.save(DECISION, path)
    one_line(caught)
    assert os.lstat(path) == before
    assert kept.read_text() == "what was there"
    assert len(list(tmp_path.iterdir())) == 2


def test_other_models_are_refused(stored):
    there = dataclasses.replace(HERE, bundle="another bundle")
    with pytest.raises(PlanError, match="for other models") as caught:
        plan_files.check(DECISION, there, "it")
    one_line(caught)


def test_load_compares_with_what_is_there(stored, monkeypatch):
    with pytest.raises(PlanError, match="for another machine"):
        plan_files.load(stored, Models.find("demo"))
    monkeypatch.setattr(plan_files, "identity", lambda *args: HERE)
    assert plan_files.load(stored, Models.find("demo")) == DECISION


def changed(path: str, value: object) -> str:
    raw = to_json(DECISION)
    inner, *names = raw, *path.split(".")
    for name in names[:-1]:
        inner = inner[name]
    inner[names[-1]] = value
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "expected a plan of version 3, found None"),
        (changed("schema", 1), "expected a plan of version 3, found 1"),
        (changed("chosen.plan.drafter", "magic"), "no drafter 'magic'"),
        (changed("chosen.plan.drafter", "head_tree"), "'head_tree' was removed, .*: use head"),
        (changed("chosen.plan.schedule", "sometimes"), "no schedule 'sometimes'"),
        (changed("chosen.plan.draft", None), "do not go together"),
        (changed("chosen.plan.draft_length", -1), "drafts of -1 tokens"),
        (changed("chosen.plan.depth", 0), "depth 0"),
        (changed("max_context", 0), "max_context is 0"),
        (changed("max_context", 1), "is damaged: max_context is 1"),
        (changed("max_context", 10**400), "is damaged: max_context is 1000"),
        (changed("chosen.plan.target.threads", -1), "is damaged: a place has -1 threads"),
        (changed("chosen.plan.target.threads", 10**6), "a place has 1000000 threads"),
        (changed("chosen.plan.target.threads", 10**30), "a place has 1000000000"),
        (changed("chosen.plan.target.cores", []), "invalid core numbers"),
        (changed("chosen.plan.target.cores", [-1]), "invalid core numbers"),
        (changed("chosen.plan.target.cores", [4096]), "invalid core numbers"),
        (changed("chosen.plan.target.cores", [0] * 1025), "invalid core numbers"),
        (changed("chosen.plan.draft_length", 1000), "drafts of 1000 tokens"),
        (changed("chosen.plan.depth", 10**400), "depth 1000"),
        (
            changed("chosen.plan.target.device", "\x1b[2J\n"),
            r"invalid name of a place: '\\x1b\[2J\\n'",
        ),
        (changed("chosen.plan.target.provider", "x" * 81), "invalid name of a place: 'xxx"),
        (changed("chosen.plan.target.provider", ""), "invalid name of a place: ''"),
        (changed("chosen.plan", ALONE), "drafter 'lookup' has no model that could run"),
        (changed("machine", {"\x1b[2J\n": 1}), "expected a finite str"),
        (changed("chosen.prediction.ttft_s", 10**400), "expected a finite float"),
        (changed("reasons", [1]), "expected a finite str|expected"),
        (changed("chosen.prediction.ttft_s", "soon"), "expected a finite float"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text, match):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=match) as caught:
        plan_files.read(path)
    one_line(caught)


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "plan.json"
    with path.open("wb") as stream:
        stream.truncate(33 << 20)
    with pytest.raises(PlanError, match="larger than 32 MiB"):
        plan_files.read(path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_byte_is_refused_or_harmless(stored, data):
    raw = bytearray(stored.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = stored.with_name("other.json")
    path.write_bytes(bytes(raw))
    # Whatever else is raised fails this.
    with suppress(PlanError):
        assert isinstance(plan_files.read(path), Decision)


def test_plan_takes_what_was_measured_and_all_memory_there_is(monkeypatch):
    asked, demo = [], Models.find("demo")

    def measured(models, options, on_progress):
        asked.append((models, options.temperature, options.memory))
        return PROFILE

    monkeypatch.setattr(profiling, "profile", measured)
    monkeypatch.setattr(profiling, "read_cached", lambda *args: PROFILE)
    monkeypatch.setattr(decisions.Runner, "__call__", lambda *args: Trials())
    decision = decisions.plan(demo, dataclasses.replace(WORK, temperature=0.5))
    assert asked == [(demo, 0.5, None)]
    assert decision.memory is None
    assert any("in total, with a context of" in reason for reason in decision.reasons)
    assert decisions.plan(demo, WORK, memory=10**9).memory == 10**9
    assert asked[-1][-1] == 10**9
    with pytest.raises(MemoryBudgetError, match="too little for any plan"):
        decisions.plan(demo, WORK, memory=1000)
    little = SimpleNamespace(usable=1000)
    monkeypatch.setattr(decisions.machine, "memory", lambda: little)
    with pytest.raises(MemoryBudgetError, match="all there is"):
        decisions.plan(demo, WORK)


def test_plans_that_could_not_run_are_not_chosen_and_that_is_said(monkeypatch):
    def fails(job):
        raise ProfileError("plans could not be run: it crashed with SIGSEGV")

    monkeypatch.setattr(profiling, "profile", lambda *args: PROFILE)
    monkeypatch.setattr(decisions.trial, "run", fails)
    decision = decisions.plan(Models.find("demo"), WORK)
    assert decision.chosen.measured is None
    assert decision.chosen.plan.plain
    said(
        decision,
        "Plain decoding is chosen",
        "measured: plans could not be run: it crashed with SIGSEGV.",
    )


_DECIDE = """
import json, sys
from dataclasses import replace
from edgedec.planning.choose import decide
from edgedec.planning.contenders import Trials
from edgedec._support.fields import to_json
from profiles import FIRST, SECOND, WORK, draft, profile, target
models = [target(), target(FIRST), target(SECOND), draft(), draft(FIRST), draft(SECOND)]
found = decide(profile(*models), WORK)
if sys.argv[1:] == ["twin"]:  # what a set of strings does to an order
    found = replace(found, reasons=tuple({*found.reasons, *map(str, range(50))}))
print(json.dumps(to_json(found)))
"""


def decided(hash_seed: int, *arguments: str) -> str:
    """A decision of an interpreter that hashes strings in its own way."""
    there = dict(os.environ, PYTHONHASHSEED=str(hash_seed))
    there["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", _DECIDE, *arguments],
        env=there, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return done.stdout


def test_plans_are_the_same_in_every_process():
    first, second = decided(1), decided(2)
    assert first == second
    assert json.loads(first)["candidates"]
    assert decided(1, "twin") != decided(2, "twin")


def test_plans_are_the_same_in_whatever_order_places_were_measured():
    models = [target(), target(FIRST), target(SECOND), draft(), draft(FIRST), draft(SECOND)]
    there = profile(*models)
    expected = decide(there, WORK)
    for order in (models[::-1], models[3:] + models[:3], models[::2] + models[1::2]):
        shuffled = dataclasses.replace(
            there,
            measured=tuple(order),
            rounds=there.rounds[::-1],
        )
        assert decide(shuffled, WORK) == expected
    # A place that is a little faster makes another decision.
    quicker = dataclasses.replace(there, measured=(target(one_row_s=7e-3), *models[1:]))
    assert decide(quicker, WORK) != expected


@pytest.mark.parametrize(
    "numbers",
    [
        (0, 2, 0.0, None),
        (1, 0, 0.0, None),
        (1, 1, 0.0, None),
        (10**30, 2, 0.0, None),
        (1, 10**30, 0.0, None),
        (1, 2, -1.0, None),
        (1, 2, float("nan"), None),
        (1, 2, float("inf"), None),
        (9, 9, 0.0, 17),
        (1, 2, 0.0, 15),
        (1, 2, 0.0, 10**30),
    ],
)
def test_an_impossible_workload_is_refused(numbers):
    with pytest.raises(InputError, match=r"expected|raise it"):
        Workload(*numbers)
