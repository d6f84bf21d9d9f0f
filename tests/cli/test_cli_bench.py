"""``edgedec bench``: its records, and what it remarks on."""

import json
from pathlib import Path
from typing import Any

import demo_head
import pytest

from edgedec.compare.drafters import entrants
from edgedec.hardware import contention
from edgedec.loading.build import OpenOptions


@pytest.fixture
def ask(run, bundle, tmp_path: Path):
    def call(*more: object) -> Any:
        size = ["-n", 12, "--threads", 1, "--out", tmp_path / "out"]
        return run("bench", bundle, *size, *more)

    return call


def test_drafters_and_their_records(ask, tmp_path: Path) -> None:
    result = ask("--count", 2, "--json", "--repeats", 2)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = list(entrants(OpenOptions(), has_draft=True))
    assert list(found) == names
    assert found["plain"]["speedup"] == 1
    assert all(row["identical"] == row["prompts"] == 2 for row in found.values())
    lines = (tmp_path / "out" / "bundle.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["kind"] for one in records[:2]] == ["machine", "about"]
    runs = [one for one in records if one["kind"] == "run"]
    assert len(runs) == 2 * 2 * len(names)


@pytest.mark.full
def test_a_head_runs_alone_too(run, tmp_path: Path) -> None:
    size = ["-n", 12, "--threads", 1, "--out", tmp_path / "out", "--count", 1]
    result = run("bench", demo_head.bundle(), *size, "--json")
    assert result.exit_code == 0, result.output
    found = list(json.loads(result.stdout))
    assert found == list(entrants(OpenOptions(), has_draft=False, has_head=True))
    assert found == [*entrants(OpenOptions(), has_draft=False), "head"]


def test_a_draft_of_several_tokens_a_pass_runs_alone_too() -> None:
    names = entrants(OpenOptions(), has_draft=True, has_mask=True)
    assert [*names] == [*entrants(OpenOptions(), has_draft=True), "parallel"]


def test_processor_time_is_a_column_and_in_the_records(ask, tmp_path: Path) -> None:
    head, plain, *_ = ask("--count", 1).stdout.splitlines()
    assert "speed-up" in head
    assert head.endswith("CPU ms/token")
    lines = (tmp_path / "out" / "bundle.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    run, summary = (one for one in records if one.get("candidate") == "plain")
    assert summary["processor_s_per_token"] == pytest.approx(run["processor_s"] / 12)
    assert float(plain.split()[-1]) == pytest.approx(1000 * run["processor_s"] / 12, rel=0.01)


@pytest.mark.parametrize(("share", "is_said"), [(None, False), (0.05, False), (0.4, True)])
def test_a_busy_machine_is_remarked_on(
    ask, monkeypatch: pytest.MonkeyPatch, share: float | None, is_said: bool
) -> None:
    """On stderr, so that the JSON is the same."""
    monkeypatch.setattr(contention, "by_others", lambda before, after: share)
    result = ask("--count", 1, "--json")
    assert result.exit_code == 0, result.output
    assert "plain" in json.loads(result.stdout)
    assert ("busy machine: other programs used 40% of" in result.stderr) is is_said
