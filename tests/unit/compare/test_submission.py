"""Files for strangers: turns, failures that stay, a summary that follows from the rows."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from edgedec.cli import main
from edgedec.compare.interleaved import Progress
from edgedec.compare.submission import RULES, read, remarks, summarised, take_turns
from edgedec.decoding.metrics import Metrics
from edgedec.errors import InputError
from edgedec.hardware.strain import power_supply
from edgedec.pipeline import GenerateOptions, Generation

PROMPTS = [("a", "text a"), ("b", "text b")]


def generation(tokens: Sequence[int], tpot_s: float) -> Generation:
    metrics = Metrics(emitted=len(tokens) + 1, first_round=1, decode_s=tpot_s * len(tokens))
    events: Any = [SimpleNamespace(token=token) for token in tokens]
    return Generation("", events, 1, "length", metrics, 0, {})


class Side:
    """Answers in a fixed time a token, and notes its turns."""

    def __init__(self, name: str, tpot_s: float, log: list[str], fails: str = "") -> None:
        self._name, self._tpot_s, self._log, self._fails = name, tpot_s, log, fails

    def generate(self, prompt: str, options: GenerateOptions | None = None) -> Generation:
        self._log.append(self._name)
        if prompt == self._fails:
            raise InputError("no memory")
        return generation([1, 2], self._tpot_s)


def turns(fails: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    log: list[str] = []
    sides = {"plain": Side("plain", 0.2, log), "auto": Side("auto", 0.1, log, fails)}
    return take_turns(sides, PROMPTS, GenerateOptions(), 3, Progress(None)), log


def test_sides_take_turns_and_who_goes_first_rotates() -> None:
    rows, log = turns()
    p, a = "plain", "auto"
    assert log == [p, a, a, p, p, a, a, p, p, a, a, p]
    found = summarised(rows)
    assert found["median_ratio"] == pytest.approx(2.0)
    assert (found["prompts"], found["compared"], found["failed_rows"]) == (2, 2, 0)
    assert found["identical"] == 2
    assert found["tokens_per_second"]["auto"] == pytest.approx(10)


def test_a_failure_stays_and_its_prompt_is_not_compared() -> None:
    rows, log = turns(fails="text b")
    assert len(rows) == len(log) == 12
    failed = [row for row in rows if "error" in row]
    assert len(failed) == 3
    assert {row["error"] for row in failed} == {"no memory"}
    found = summarised(rows)
    assert (found["prompts"], found["compared"], found["failed_rows"]) == (2, 1, 3)
    # What dropped them would be seen.
    assert summarised([row for row in rows if "error" not in row])["failed_rows"] == 0


def test_the_median_of_three_counts_and_two_do_not() -> None:
    rows, _ = turns()
    rows[1]["tpot_s"] = 9.0  # one outlier of auto
    assert summarised(rows)["median_ratio"] == pytest.approx(2.0)
    fewer = [row for row in rows if row["repeat"] < 2]
    assert summarised(fewer)["compared"] == 0
    assert summarised(fewer)["median_ratio"] is None


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of the pair that ships."""
    file = tmp_path_factory.mktemp("submitted") / "mine.json"
    words = ["bench", "demo", "--submit", str(file), "--count", "2", "-n", "8", "--threads", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "x plain decoding (median of" in done.output
    return file


def test_a_submission_says_what_was_measured_on_what(measured: Path) -> None:
    found = read(measured)
    assert found["rules"] == list(RULES)
    assert len(RULES) == 10
    assert len(found["rows"]) == 2 * 2 * 3
    assert [row["side"] for row in found["cold"]] == ["plain", "auto"]
    assert all(row["open_s"] > 0 for row in found["cold"])
    assert found["files"]["manifest.json"]
    assert set(found["state"]) == {"before", "after", "power", "other_load"}
    assert found["versions"]["onnxruntime"]
    assert "def " not in measured.read_text("utf-8")  # no text of a prompt


def altered(found: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(found)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    result: dict[str, Any] = changed
    return result


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        (("summary", "median_ratio"), 3.0, "what follows from the rows"),
        (("rows", 0, "error"), "gone", "what follows from the rows"),
        (("rows", 0, "tpot_s"), -1.0, "expected seconds"),
        (("rows", 0, "side"), "other", "one of plain, auto"),
        (("rows",), [], "a list of 1 to"),
        (("rules", 1), "Ratios of sessions are fine.", "the ten rules"),
        (("submission",), 7, "expected 1"),
        (("machine", "cpu"), {}, "name is missing"),
    ],
)
def test_what_breaks_a_rule_is_refused(
    measured: Path, path: Any, to: Any, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(altered(read(measured), *path, to=to)), "utf-8")
    with pytest.raises(InputError, match=expected) as caught:
        read(file)
    assert "\n" not in str(caught.value)


def test_a_row_that_was_left_out_is_seen(measured: Path, tmp_path: Path) -> None:
    found = read(measured)
    file = tmp_path / "other.json"
    file.write_text(json.dumps({**found, "rows": found["rows"][1:]}), "utf-8")
    with pytest.raises(InputError, match="what follows from the rows"):
        read(file)


def test_strain_is_remarked_on(measured: Path) -> None:
    calm = {"before": {"slowed_by": ""}, "after": {"slowed_by": ""}, "power": "mains",
            "other_load": 0.0}  # fmt: skip
    found = read(measured)
    assert remarks({**found, "state": calm}) == []
    hot = {**calm, "after": {"slowed_by": "heat"}, "power": "battery", "other_load": 0.5}
    assert remarks({**found, "state": hot}) == [
        "other programs used 50%", "clock lowered by heat after", "on battery",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, ""),
        ({"AC/type": "Mains", "AC/online": "1", "BAT0/type": "Battery"}, "mains"),
        (
            {"AC/type": "Mains", "AC/online": "0", "BAT0/type": "Battery",
             "BAT0/status": "Discharging"},
            "battery",
        ),
        ({"BAT0/type": "Battery", "BAT0/status": "Full"}, ""),
        ({"ucsi/type": "USB"}, ""),
    ],
)  # fmt: skip
def test_the_power_supply(files: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, text in files.items():
        file = tmp_path / "sys/class/power_supply" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", "ascii")
    assert power_supply(tmp_path) == said


def test_the_page_of_the_rules_has_them_all(repository: Path) -> None:
    page = (repository / "docs" / "submissions.md").read_text("utf-8")
    for number, rule in enumerate(RULES, 1):
        assert f"\n{number}. {rule}\n" in page
