"""The bench of the phone demo's decoder: its arithmetic, and what it says without a JVM."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import android_core
from edgedec.compare.records import recording
from edgedec.errors import EdgedecError, InputError

# Answers as the real one; reads a line for each but the first.
_FAKE_JAVA = """#!/bin/sh
echo '{"onnxruntime": "1.29.0", "java": "17", "first_open_s": 0.5, "exact": true}'
while read -r line; do
  case "$line" in
    *passes*) echo '{"seconds": [0.001, 0.002, 0.003]}' ;;
    *open*) echo '{"seconds": [0.25]}' ;;
    *plain*) echo '{"tpot_s": 0.001, "outside_s": 0.00005, "ids": [1]}' ;;
    *drafted*) echo '{"tpot_s": 0.0005, "outside_s": 0.00008, "ids": [1]}' ;;
  esac
done
"""


def test_a_ratio_is_the_median_of_the_turns_ratios() -> None:
    # The whole machine is ten times slower in the last turn, one pass was disturbed.
    turns = [([1.0, 1.0, 9.0], [1.1, 1.1]), ([2.0], [2.2]), ([10.0], [10.4])]
    assert android_core.ratio(turns) == pytest.approx(1.1)


def test_a_speed_up_compares_texts_of_one_prompt() -> None:
    plain = [([4.0], [6.0]), ([1.0], [1.0]), ([3.0], [2.0])]
    drafted = [([2.0], [2.0]), ([1.0], [1.0]), ([2.0], [1.0])]
    row = android_core.speed_up(plain, drafted, "greedy")
    assert (row["python"], row["jvm"]) == (1.5, 2.0)
    assert row["jvm_ratio"] == pytest.approx(4 / 3)


def test_the_other_side_begins_in_every_second_turn() -> None:
    order: list[str] = []

    def way(name: str, seconds: float) -> Sequence[float]:
        order.append(name)
        return [seconds]

    ways = [lambda: way("python", 1.0), lambda: way("jvm", 2.0)]
    assert [android_core.in_turn(turn, ways) for turn in (0, 1)] == [([1.0], [2.0])] * 2
    assert order == ["python", "jvm", "jvm", "python"]


def test_without_a_build_it_says_how_to_get_one(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="make android-core"),
        android_core.running(tmp_path, 1, tmp_path),
    ):
        pass


def test_a_jvm_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, monkeypatch, "#!/bin/sh\necho 'no such class' >&2\n")
    with (
        pytest.raises(EdgedecError, match="the JVM ended: no such class"),
        android_core.running(tmp_path, 1, tmp_path),
    ):
        pass
    _java(tmp_path, monkeypatch, '#!/bin/sh\necho \'{"error": "no bundle"}\'\n')
    with (
        pytest.raises(EdgedecError, match="the JVM: no bundle"),
        android_core.running(tmp_path, 1, tmp_path),
    ):
        pass


def test_the_section_records_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, monkeypatch, _FAKE_JAVA)
    monkeypatch.setattr(android_core, "BUILT", tmp_path)
    for name in ("TURNS", "PASSES", "OPENED"):
        monkeypatch.setattr(android_core, f"_{name}", 1)
    monkeypatch.setattr(android_core, "_TOKENS", 24)  # more than one round drafts
    suite = Suite(Bundles(tmp_path, tmp_path), tmp_path / "out", 2, 1)
    with recording(suite.out, "android_core") as recorder:
        rows = {row["what"]: row for row in android_core.android_core(suite, recorder)}
    assert rows["pass of 8 rows"]["jvm"] == 0.002
    assert rows["open"]["jvm"] == 0.25
    assert rows["speed-up by drafting, greedy"]["jvm"] == 2.0
    assert rows["round outside the passes, drafted, greedy"]["jvm"] == 0.00008
    lines = (suite.out / "android_core.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    (versions,) = [record for record in records if record["kind"] == "versions"]
    (machine,) = [record for record in records if record["kind"] == "machine"]
    assert versions["jvm_onnxruntime"] == "1.29.0"
    assert machine["onnxruntime"]


def _java(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program of this name first on the path, and a build beside it."""
    java = folder / "java"
    java.write_text(script, encoding="utf-8")
    java.chmod(0o755)
    (folder / "classpath").write_text("libraries.jar", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
