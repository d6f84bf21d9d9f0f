"""Joules per token, from the system's files to what the commands print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import energy_files
import pytest

from edgedec.hardware import energy
from edgedec.pipeline import decoder

Run = Callable[..., Any]
JOULES = 6.0  # of every text
TOKENS = 12


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose processor's counter tells that each text took ``JOULES``."""
    classes = tmp_path / "class"
    energy_files.zone(classes, "intel-rapl:0", "package-0", 0)
    joules = [0.0]
    honest = decoder.longest_wait

    def ended(*times: Any) -> Any:
        joules[0] += JOULES
        energy_files.zone(classes, "intel-rapl:0", "package-0", joules[0])
        return honest(*times)

    monkeypatch.setattr(energy, "_CLASSES", classes)
    monkeypatch.setattr(decoder, "longest_wait", ended)
    return classes


def generate(run: Run, bundle: Path, *more: object) -> Any:
    options = ["-n", TOKENS, "--temperature", 0, "--threads", 1]
    result = run("generate", bundle, "def f(x):", *options, *more)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("more", [(), ("-v",)])
def test_the_line_of_figures_says_joules_per_token(
    run: Run, bundle: Path, counter: Path, more: tuple[str, ...]
) -> None:
    assert f", {JOULES / TOKENS:.3g} J/token" in generate(run, bundle, *more).stderr


def test_json_says_joules_per_token(run: Run, bundle: Path, counter: Path) -> None:
    found = json.loads(generate(run, bundle, "--json").stdout)
    assert found["joules_per_token"] == pytest.approx(JOULES / TOKENS)


def test_a_file_of_prompts_has_them_too(
    run: Run, bundle: Path, counter: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def f(x):"}\n' * 2, "utf-8")
    options = ["-n", TOKENS, "--temperature", 0, "--threads", 1]
    result = run("generate", bundle, "--prompts", prompts, *options)
    assert result.exit_code == 0, result.output
    assert result.stderr.count(f"{JOULES / TOKENS:.3g} J/token") == 2


def test_the_demo_says_them_of_each_side(run: Run, bundle: Path, counter: Path) -> None:
    options = ["--count", 1, "-n", TOKENS, "--pace", 0, "--drafter", "lookup"]
    result = run("demo", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(f"{JOULES / TOKENS:.3g} J/token") == 2
    (found,) = json.loads(run("demo", *options, "--json").stdout)
    each = pytest.approx(JOULES / TOKENS)
    assert found["joules_per_token"] == {"plain": each, "speculative": each}


def test_bench_has_a_column(run: Run, bundle: Path, counter: Path, tmp_path: Path) -> None:
    options = ["-n", TOKENS, "--threads", 1, "--count", 1, "--out", tmp_path / "out"]
    head, *rows = run("bench", bundle, *options).stdout.splitlines()
    assert head.endswith("CPU ms/token   J/token")
    assert {float(row.split()[-1]) for row in rows} == {JOULES / TOKENS}


def test_a_machine_that_does_not_tell_has_none(
    run: Run, bundle: Path, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "_CLASSES", counter / "nothing")
    assert "J/token" not in generate(run, bundle, "-v").stderr
    assert "joules_per_token" not in json.loads(generate(run, bundle, "--json").stdout)


def test_a_counter_that_stands_still_is_not_zero_joules(
    run: Run, bundle: Path, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "longest_wait", lambda *_: 0.0)
    assert "J/token" not in generate(run, bundle).stderr
