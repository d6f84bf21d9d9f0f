"""What commands say of a model and of its texts, in words that are true."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgedec.cli import chat
from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.own_sampling import described
from edgedec.library.records import CALIBRATED, Form
from edgedec.loading import build

Run = Callable[..., Any]


def test_greedy_alone() -> None:
    filtered = SamplingParams(top_p=0.9, top_k=40)
    assert described(filtered) == "greedy"
    assert described(SamplingParams(repetition_penalty=1.1)) == "greedy, repetition-penalty 1.1"
    drawn = SamplingParams(temperature=0.7, top_p=0.9, top_k=40)  # the control
    assert described(drawn) == "temperature 0.7, top-p 0.9, top-k 40"


def test_weights_in_words() -> None:
    assert str(Form("auto")) == "auto, rounded to nearest"
    assert str(Form("int4", CALIBRATED)) == "int4, calibrated"
    assert str(Form("int8")) == "int8"


def test_the_cache_after_clear(run: Run, bundle: Path) -> None:
    told = run(
        "chat", bundle, "--drafter", "none", "-n", 4, stdin="/show\nHi\n/show\n/clear\n/show\n"
    )
    shown = [line.split(None, 1)[1] for line in told.stderr.splitlines() if line[:5] == "cache"]
    empty, held, cleared = shown
    assert empty == "empty"
    assert held.endswith(" tokens")
    assert cleared == f"{held}, of earlier texts"


def test_settings_that_nobody_made_are_one_line(run: Run) -> None:
    assert run("config", "set", "temperature", "0.3").exit_code == 0
    lines = run("config").stdout.splitlines()
    run("config", "unset", "temperature")
    (others,) = [line for line in lines if "each command decides" in line]
    assert "memory, system, top_k" in others
    assert "temperature" not in others
    assert [line.split()[1] for line in lines if line.startswith("temperature")] == ["0.3"]


def test_a_seed_is_reported_where_it_had_an_effect(run: Run, bundle: Path) -> None:
    def seed(temperature: str) -> int | None:
        words = ("Hi", "--temperature", temperature, "--seed", 7, "-n", 2, "--json")
        found: int | None = json.loads(run("generate", bundle, *words).stdout)["seed"]
        return found

    assert (seed("0"), seed("0.8")) == (None, 7)


def test_a_name_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {
        "drafter": "none", "draft_length": 0, "lossless": True, "schedule": "sequential",
        "threads": 1, "accept": "coupling", "max_context": 8,
    }  # fmt: skip
    opened: Any = SimpleNamespace(pair=SimpleNamespace(target=None, draft=None), plan=plan)
    monkeypatch.setattr(chat, "_named", lambda source: "m.gguf, gguf, 9 MB")
    assert dict(chat._banner("a/m.gguf", opened))["model"] == "m.gguf, gguf, 9 MB"
    assert dict(chat._banner("mine", opened))["model"] == "mine, m.gguf, gguf, 9 MB"


def test_a_draft_with_few_of_the_tokens(caplog: pytest.LogCaptureFixture) -> None:
    build._note_few_in_common({"shared_of_target": 0.07, "shared_of_sample": 0.76})
    (said,) = caplog.messages
    assert "7% of the target's tokens and 76% of those of a sample text" in said
    caplog.clear()
    build._note_few_in_common({"shared_of_target": 0.94, "shared_of_sample": 0.97})
    build._note_few_in_common({"vocabulary": "the same"})
    assert not caplog.messages
