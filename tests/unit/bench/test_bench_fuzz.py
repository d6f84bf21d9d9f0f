"""The fuzzing bench: what it counts, what it keeps, and that a broken reader is noticed."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgedec.bench.fuzzing import attacks, run
from edgedec.bench.fuzzing.kinds import NAMES, Kind, kinds
from edgedec.bench.records import recording
from edgedec.errors import BundleError

pytest.importorskip("gguf")


def fuzzed(
    out: Path, count: int, only: tuple[str, ...] = ()
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with recording(out, "fuzz") as recorder:
        rows = run.run(recorder, count, out, only=only)
    lines = (out / "fuzz.jsonl").read_text("utf-8").splitlines()
    return rows, [json.loads(line) for line in lines]


def test_every_kind_is_read_and_refused(tmp_path: Path) -> None:
    rows, records = fuzzed(tmp_path, 1000)
    assert tuple(row["input"] for row in rows) == NAMES
    for row in rows:
        assert row["accepted"] + row["refused"] == row["inputs"]
        assert min(row["accepted"], row["refused"]) > 0, "a fuzz that one side never sees"
        assert row["failure"] == 0
    assert records[-1]["inputs"] == records[-1]["asked"] == 1000
    assert not list((tmp_path / "fuzz-inputs").iterdir())


def test_some_kinds_alone(tmp_path: Path) -> None:
    rows, records = fuzzed(tmp_path, 90, ("coreml weights", "coreml program"))
    assert {row["input"]: row["inputs"] for row in rows} == {
        "coreml program": 60, "coreml weights": 30,
    }  # fmt: skip
    assert records[-1]["inputs"] == 90


def test_a_seed_names_an_input(tmp_path: Path) -> None:
    for kind in kinds(tmp_path):
        assert run.damaged(kind, 0, 7) == run.damaged(kind, 0, 7)
        assert len({run.damaged(kind, seed, 7) for seed in range(20)}) > 10


def broken(kind: Kind, error: Exception, byte: int) -> Kind:
    """A reader that fails at some inputs."""

    def read(file: Path) -> None:
        kind.read(file)
        if file.read_bytes() != kind.whole and sum(file.read_bytes()) % 4 == byte:
            raise error

    return dataclasses.replace(kind, read=read)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (BundleError("two\nlines"), "its error is not one line: 'two\\nlines'"),
        (BundleError("x" * 5000), "its error is not one line"),
    ],
)
def test_a_broken_reader_is_a_failure_and_its_input_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    real = kinds(tmp_path)[0]
    monkeypatch.setattr(run, "kinds", lambda folder: [broken(real, error, 1)])
    rows, records = fuzzed(tmp_path, 300)
    failures = [record for record in records if record["kind"] == "failure"]
    assert rows[0]["failure"] == len(failures) > 0
    for failure in failures:
        assert failure["problem"].startswith(problem)
        kept = (tmp_path / "fuzz-inputs" / failure["file"]).read_bytes()
        assert kept == run.damaged(real, failure["seed"], failure["index"])


def test_a_run_ended_early_records_what_it_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kinds(tmp_path)[0]
    seen: list[Path] = []

    def read(file: Path) -> None:
        seen.append(file)
        if len(seen) == 50:
            raise KeyboardInterrupt
        real.read(file)

    monkeypatch.setattr(run, "kinds", lambda folder: [dataclasses.replace(real, read=read)])
    _, records = fuzzed(tmp_path, 1000)
    assert (records[-1]["asked"], records[-1]["inputs"]) == (1000, 48)


def test_a_reader_that_refuses_the_sound_input_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kinds(tmp_path)[0]
    monkeypatch.setattr(run, "kinds", lambda folder: [dataclasses.replace(real, whole=b"{}")])
    with pytest.raises(BundleError):
        fuzzed(tmp_path, 10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
def test_what_an_attack_costs(tmp_path: Path) -> None:
    with recording(tmp_path, "untrusted") as recorder:
        harmless, refused = attacks.run(recorder, (attacks.HARMLESS, "template: format"))
    assert (harmless["code"], harmless["holds"]) == (0, True)
    assert (refused["code"], refused["holds"]) == (2, True)
    assert refused["said"].endswith("it needs more than 160 MiB of memory")
    # Python takes about 10 MB in a process of its own.
    for row in (harmless, refused):
        assert 10e6 < row["child_bytes"] < row["peak_bytes"] - 10e6


def test_what_is_not_refused_does_not_hold(tmp_path: Path) -> None:
    taken = next(attacks.attacks(tmp_path))
    row = attacks._measured(dataclasses.replace(taken, name="an attack"), tmp_path)
    assert (row["code"], row["holds"]) == (0, False)
