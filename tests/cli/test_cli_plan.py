"""`edgedec plan`: a tiny pair measured for real, decided, kept and followed."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from profiles import FIRST, SECOND, draft, profile, ran, target

from edgedec._support.fields import from_json
from edgedec.errors import InputError, PlanError
from edgedec.loading.sources import Models
from edgedec.planning import decisions, remembered, streaming
from edgedec.planning.contenders import Trials
from edgedec.profiling import measuring
from edgedec.profiling import run as profiling
from edgedec.profiling.store import identity
from edgedec.records.place import Place
from edgedec.records.plan import Decision, Plan
from edgedec.verify import same_texts

CPU_ALONE = Place("onnx", threads=1)
SHORT = ("--prompt-tokens", "20", "--new-tokens", "40")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each_place_once: None) -> None:
    """A store of its own, and short measurements."""
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "profiles"))


def speed(plan: Plan) -> float:
    """Tokens per second of plans that ran."""
    return 100.0 if plan.plain else 150.0 + (plan.draft_length is None)


def run_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ran(speed)
    monkeypatch.setattr(decisions.Runner, "__call__", lambda self, *plans: run(*plans))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a pair had been measured, and its plans had run."""
    run_for_nothing(monkeypatch)
    found = profile(target(), draft())
    monkeypatch.setattr(profiling, "profile", lambda *args: found)
    monkeypatch.setattr(profiling, "read_cached", lambda *args: found)


def test_a_pair_is_measured_decided_and_the_plan_is_followed(
    run: Callable, bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    result = run("plan", bundle, *SHORT, "--memory", "1GB", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    decision = from_json(Decision, json.loads(result.stdout), "plan", PlanError)
    assert decision == from_json(Decision, json.loads(out.read_text()), "plan", PlanError)
    assert decision.memory == 10**9
    assert decision.chosen.prediction.peak_bytes <= 10**9
    assert {one.plan.drafter for one in decision.candidates} >= {"none", "lookup", "model", "tree"}
    ran_for_real = [one for one in decision.candidates if one.measured]
    assert decision.chosen in ran_for_real
    plain = [one.measured for one in ran_for_real if one.plan.plain and one.measured]
    assert max(one.speedup for one in plain) == pytest.approx(1.0)
    assert {one.block_efficiency for one in plain} == {1.0}
    assert 2 <= len(ran_for_real) <= 7

    text = run("generate", "x", "--bundle", bundle, "--plan", out, "--json", "--max-new-tokens", 4)
    assert text.exit_code == 0, text.output
    facts = json.loads(text.stdout)["plan"]
    assert facts["drafter"] == decision.chosen.plan.drafter
    assert facts["max_context"] == decision.max_context


@pytest.mark.full
def test_verify_drafts_where_the_plan_does_not(
    run: Callable, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("plan", bundle, *SHORT).exit_code == 0
    recall = remembered.recall

    def plainly(*asked: Any) -> Decision | None:
        if (last := recall(*asked)) is None:
            return None
        plain = next(one for one in last.candidates if one.plan.plain)
        return dataclasses.replace(last, chosen=plain)

    monkeypatch.setattr(remembered, "recall", plainly)
    ask = ["verify", bundle, "--count", 1, "-n", 16, "--json"]
    result = run(*ask)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["drafted_tokens"] > 0
    assert found["notes"][-1].endswith("compared with --draft-length 3")
    monkeypatch.setattr(same_texts, "_drafts", lambda texts: True)  # taken for drafted
    result = run(*ask)
    assert (result.exit_code, json.loads(result.stdout)["drafted_tokens"]) == (1, 0)


@pytest.mark.full
def test_a_target_alone_has_a_plan(run: Callable, plain_bundle: Path) -> None:
    result = run("plan", plain_bundle, *SHORT)
    assert result.exit_code == 0, result.output
    assert "plain on onnx" in result.stdout


def test_the_last_line_is_the_choice(run: Callable, known: None) -> None:
    result = run("plan", "demo", *SHORT)
    assert result.exit_code == 0, result.output
    *reasons, empty, last = result.stdout.splitlines()
    assert last.endswith(" tokens/s, 1.51 times plain decoding.")
    label = last.removeprefix("Plan: ").split(", ")[0]
    assert reasons[0].startswith(f"{label} decoded 151 tokens/s, 1.51 times")
    assert empty == ""
    assert not any(line.startswith("* ") for line in reasons), "the table is for --all"
    assert result.stderr == "next: edgedec generate demo 'def __lt__(self, other):'\n"
    assert run("plan", "demo", *SHORT, "--all").stdout.splitlines()[-1] == last


def test_the_table_marks_the_choice_and_says_why(run: Callable, known: None) -> None:
    result = run("plan", "demo", *SHORT, "--all")
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert " ".join(head.split()) == "plan tokens/s vs plain each text first token memory"
    (chosen,) = (line for line in lines if line.startswith("* "))
    plain = next(line for line in lines if line.startswith("  plain on"))
    assert plain.split()[-6:-4] == ["1.00", "0.75-1.50"]
    assert chosen.split()[-6:-4] == ["1.51", "1.13-2.27"]
    label = chosen[2:].split("  ")[0]
    assert any(line.startswith(f"{label} decoded 151 tokens/s, 1.51 times") for line in lines)
    assert lines[-3].startswith("If that fails: ")
    assert lines[-3].endswith("plain on onnx cpu x2.")
    assert not any("more with --all" in line for line in lines)


def test_figures_of_plans_that_did_not_run_are_kept_back_or_marked(
    run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = profile(
        target(), target(FIRST, 9e-3), target(SECOND, 9e-3), draft(), draft(FIRST), draft(SECOND)
    )
    run_for_nothing(monkeypatch)
    monkeypatch.setattr(profiling, "profile", lambda *args: places)
    short = run("plan", "demo", *SHORT)
    assert short.exit_code == 0, short.output
    assert "~" not in short.stdout
    full = run("plan", "demo", *SHORT, "--all").stdout
    assert "~ estimated by formula" in full
    rows = [line for line in full.splitlines() if re.search(r" ms +[\d.]+ .B$", line)]
    marked = [line for line in rows if "~" in line]
    found = json.loads(run("plan", "demo", *SHORT, "--json").stdout)["candidates"]
    usable = [one for one in found if not one["refused"]]
    assert len(marked) == sum(not one["measured"] for one in usable) > 0
    assert len(rows) == len(usable)


def test_an_impossible_budget_is_one_line_with_the_smallest(
    run: Callable, one_line: Callable, known: None
) -> None:
    line = one_line(run("plan", "demo", *SHORT, "--memory", "100KB"))
    assert "the smallest possible is plain on onnx cpu x2 with a context of 60 tokens" in line
    enough = line.split("give --memory ")[1].split()[0]
    assert run("plan", "demo", *SHORT, "--memory", enough).exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--memory", "lots"], "expected a size"),
        (["--max-context", "10"], "--max-context"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--temperature", "inf"], "temperature is inf"),
        (["--new-tokens", "1"], "--new-tokens"),
        (["--out", "/dev/null"], "is not a plain file, not replaced"),
        (["--max-context", "20"], "--max-context 20: the prompt and the text have 60 tokens"),
        (["--temperature", "-1"], "-1"),
        (["--out", "/no/such/folder/plan.json"], "cannot be written"),
        (["--max-context", "999999"], "the target was trained for 4096"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    run: Callable, one_line: Callable, known: None, options: list[str], words: str
) -> None:
    assert words in one_line(run("plan", "demo", *SHORT, *options))


def test_another_machines_plan_is_refused(
    run: Callable, one_line: Callable, known: None, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    assert run("plan", "demo", *SHORT, "--out", out).exit_code == 0
    line = one_line(run("generate", "x", "--plan", out))
    assert "for another machine" in line
    assert "cpu was a processor" in line


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """As if the pair that ships had been measured on this machine, with other programs about."""
    here = identity(Models.find("demo"))
    run_for_nothing(monkeypatch)

    def measured_with(busy: float | None, **changes: object) -> None:
        found = dataclasses.replace(
            profile(target(CPU_ALONE), draft(CPU_ALONE)), machine=dict(here.machine),
            bundle=here.bundle, versions=dict(here.versions), busy=busy, **changes,
        )  # fmt: skip
        monkeypatch.setattr(profiling, "profile", lambda *args: found)

    return measured_with


def kept(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.plan.json")) if folder.is_dir() else []


@pytest.mark.parametrize("busy", [None, 0.0, 0.1, 0.37, 1.0])
def test_a_plan_measured_on_a_busy_machine_is_kept_and_says_so(
    run: Callable, measured: Callable, tmp_path: Path, busy: float | None
) -> None:
    measured(busy)
    result = run("plan", "demo", *SHORT)
    assert result.exit_code == 0, result.output
    assert len(kept(tmp_path / "profiles")) == 1
    assert "not stored" not in result.stderr
    said = f"other programs used {busy or 0:.0%} of the processor's time"
    assert (said in " ".join(result.stdout.split())) == ((busy or 0) > 0.1)
    out = tmp_path / "plan.json"
    found = json.loads(run("plan", "demo", *SHORT, "--json", "--out", out).stdout)
    assert found["busy"] == json.loads(out.read_text())["busy"] == busy


def test_it_does_not_replace_one_from_a_quiet_machine(
    run: Callable, measured: Callable, tmp_path: Path
) -> None:
    def stored() -> float:
        (file,) = (tmp_path / "profiles").glob("*.plan.json")
        return json.loads(file.read_text())["content"]["busy"]

    for busy, expected in ((0.5, 0.5), (0.6, 0.6), (0.0, 0.0), (0.7, 0.0), (0.05, 0.05)):
        measured(busy)
        result = run("plan", "demo", *SHORT)
        assert stored() == expected
        is_kept = busy == expected
        assert ("The plan stored before is kept." in result.stderr) != is_kept
        assert ("measured while it was quiet" in result.stderr) != is_kept


def test_a_plan_that_is_no_longer_valid_is_replaced(
    run: Callable, measured: Callable, tmp_path: Path
) -> None:
    measured(0.0)
    run("plan", "demo", *SHORT)
    (file,) = (tmp_path / "profiles").glob("*.plan.json")
    file.write_text("{}")
    measured(0.5)
    assert "not stored" not in run("plan", "demo", *SHORT).stderr
    assert json.loads(file.read_text())["content"]["busy"] == 0.5


def test_passes_that_were_interrupted_are_named(
    run: Callable, measured: Callable, tmp_path: Path
) -> None:
    measured(0.0, measured=(target(CPU_ALONE, steady=False),))
    result = run("plan", "demo", *SHORT)
    words = " ".join(result.stdout.split())
    assert "the passes on onnx cpu x1 were interrupted too often" in words
    assert len(kept(tmp_path / "profiles")) == 1


@pytest.mark.parametrize("measures", ["nothing", "plain", "all"])
def test_a_plan_for_which_nothing_that_drafts_was_measured_is_not_kept(
    run: Callable, measured: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    measures: str,
) -> None:  # fmt: skip
    measured(0.0)

    def tried(_: object, plans: Sequence[Plan], together: bool) -> Trials:
        found = ran(speed)(plans, together).found if measures != "nothing" else {}
        if measures == "all":
            return Trials(found)
        return Trials({plan: one for plan, one in found.items() if plan.plain}, "no time was left")

    monkeypatch.setattr(decisions.Runner, "__call__", tried)
    result = run("plan", "demo", *SHORT)
    assert result.exit_code == 0, result.output
    is_kept = measures == "all"
    assert ("no plan that drafts could be measured. Without a plan" in result.stderr) != is_kept
    assert ("no plan that drafts could be measured: no time was left." in result.stdout) != is_kept
    assert bool(kept(tmp_path / "profiles")) == is_kept


def test_a_memory_limit_measures_nothing(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "profile", lambda *args: 1 / 0)
    shown = run("generate", "demo", "a", "-n", "2", "--memory", "2GB", "-v")
    assert shown.exit_code == 0, shown.stderr
    assert "no plan (none was made for this amount of memory)" in " ".join(shown.stderr.split())
    assert kept(tmp_path / "profiles") == []


@pytest.mark.parametrize("busy", [0.05, 0.87])
def test_a_plan_to_stream_says_that_the_machine_was_busy(
    run: Callable, measured: Callable, busy: float, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is kept all the same: else every start would measure again."""
    monkeypatch.setattr(streaming, "to_begin_with", lambda *_: 4_000_000)
    measured(busy)
    shown = run("generate", "demo", "a", "-n", "2", "--memory", "2GB")
    assert shown.exit_code == 0, shown.stderr
    assert ("other programs used 87% of the processor" in caplog.text) == (busy > 0.5)


@pytest.mark.slow
def test_a_real_busy_loop_while_a_pair_is_measured_is_noticed(
    run: Callable, bundle: Path, tmp_path: Path
) -> None:
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        result = run("plan", bundle, *SHORT)
    finally:
        loop.kill()
        loop.wait()
    assert result.exit_code == 0, result.output
    assert "The machine was busy when measured" in " ".join(result.stdout.split())


@pytest.mark.full
def test_a_plan_is_made_on_text_like_the_users(
    run: Callable, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"prompt": "one two", "id": "first"}\n{"messages": [{"role": "user", "content": "hi"}]}\n'
    )
    result = run("plan", bundle, *SHORT, "--prompts", file, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["texts"] == "2 texts of mine.jsonl"
    text = run("generate", "x", "--bundle", bundle, "--json", "--max-new-tokens", 4)
    assert json.loads(text.stdout)["plan"]["plan_made_on"] == "2 texts of mine.jsonl"
    # Places are not measured again, whatever the texts are.
    other = file.rename(tmp_path / "other.jsonl")
    monkeypatch.setattr(measuring, "measure_places", lambda *args, **named: 1 / 0)
    shown = run("plan", bundle, *SHORT, "--prompts", other)
    assert "2 of the 2 texts of other.jsonl" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"messages": []}\n', "non-empty"),
        ('{"prompt": ""}\n', "non-empty"),
        ("no json\n", "expected a JSON object"),
        ('{"messages": [{"role": "user"}]}\n', "expected an object with text role and content"),
    ],
)
def test_prompts_that_cannot_be_measured_are_refused_before_measuring(
    run: Callable, one_line: Callable, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, lines: str, words: str,
) -> None:  # fmt: skip
    def never(*args: object, **named: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(measuring, "measure_places", never)
    file = tmp_path / "mine.jsonl"
    file.write_text(lines)
    assert words in one_line(run("plan", "demo", "--prompts", file))


def test_a_plan_is_forgotten_and_nothing_else(
    run: Callable, one_line: Callable, measured: Callable, tmp_path: Path
) -> None:
    assert "no plan was stored for this model" in run("plan", "demo", "--forget").stdout
    measured(0.0)
    assert run("plan", "demo", *SHORT).exit_code == 0
    (tmp_path / "profiles" / "other.plan.json").write_text("{}")
    assert len(kept(tmp_path / "profiles")) == 2
    assert "--forget: give MODEL" in one_line(run("plan", "demo", "--forget", "--memory", "1GB"))
    assert len(kept(tmp_path / "profiles")) == 2
    assert "the plan is deleted" in run("plan", "demo", "--forget").stdout
    assert kept(tmp_path / "profiles") == ["other.plan.json"]
    assert "no plan was stored for this model" in run("plan", "demo", "--forget").stdout


def test_what_gains_without_a_draft_model_is_said_before_anything_is_measured(
    run: Any, bundle: Path, plain_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: Any, on_progress: Any, **__: Any) -> None:
        on_progress("a step", 0, 1)
        raise InputError("measuring")

    monkeypatch.setattr("edgedec.planning.decisions.plan", measured)
    said, *_, error = run("plan", plain_bundle).stderr.splitlines()
    assert said.startswith("no draft model: texts gain ")
    assert "free prose does not" in said
    assert "measuring" in error
    assert "no draft model" not in run("plan", plain_bundle, "--json").stderr
    assert "no draft model" not in run("plan", bundle).stderr  # the control
