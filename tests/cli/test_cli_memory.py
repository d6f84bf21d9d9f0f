"""A memory limit for everything: kept to, or refused with the smallest that would do."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import demo_head
import pytest

from edgedec.memory import guard as guarding
from edgedec.memory.guard import MemoryGuard

PROMPT = "def f(x):\n    return x\n" * 12
ASK = (
    "generate", "demo", "--plan", "none", "--memory", "8GB", "--json", "--max-new-tokens", 48,
    "--batch-invariant", PROMPT,
)  # fmt: skip
Ask = Callable[..., "CompletedProcess[bytes]"]


@pytest.fixture
def generate(start: Callable[..., "Popen[bytes]"], tmp_path: Path) -> Ask:
    """Decode in a process of its own, with nothing measured before the first call."""

    def call(memory: int, *how: object, prompt: str = PROMPT) -> "CompletedProcess[bytes]":
        environment = {**os.environ, "EDGEDEC_CACHE": str(tmp_path)}
        process = start(
            "generate", *how, "--memory", f"{memory}MB", "--json", "--max-new-tokens", 64, prompt,
            env=environment,
        )  # fmt: skip
        out, err = process.communicate()
        return CompletedProcess(process.args, process.returncode, out, err)

    return call


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_smallest_memory_that_is_named_is_enough_and_kept_to(generate: Ask) -> None:
    assert generate(4).returncode == 2  # at once, before anything is measured
    refused = generate(70)
    assert refused.returncode == 2
    line = refused.stderr.decode().splitlines()[-1]
    found = re.search(r"give --memory (\d+)MB", line)
    assert found is not None, line
    smallest = int(found[1])
    # It is for the shortest context; and a process takes some MB more or less from run to run.
    for memory in (smallest + 4, smallest + 60):
        ran = generate(memory)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["peak_memory_bytes"] <= memory * 1e6
    assert generate(smallest - 10).returncode == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_head_is_left_out_where_the_line_says_and_the_limit_kept_to(generate: Ask) -> None:
    """With less than the line says the head is not loaded; with that, long texts go without it."""
    how = demo_head.bundle(), "--plan", "none"

    def peak(memory: int, prompt: str) -> dict[str, Any]:
        ran = generate(memory, *how, prompt=prompt)
        assert ran.returncode == 0, ran.stderr
        answer: dict[str, Any] = json.loads(ran.stdout)
        assert answer["peak_memory_bytes"] <= memory * 1e6
        return answer | {"said": ran.stderr.decode()}

    refused = generate(70, *how)
    least = re.search(rb"give --memory (\d+)MB", refused.stderr)
    assert least is not None, refused.stderr
    without = peak(int(least[1]) + 4, PROMPT)
    assert without["plan"]["drafter"] == "text"
    named = re.search(r"the head is left out.* --memory (\d+)MB", without["said"])
    assert named is not None, without["said"]
    short = peak(int(named[1]) + 2, PROMPT)
    assert short["plan"]["drafter"] == "headed"
    assert (short["said"], short["memory"]["events"]) == ("", [])
    assert short["memory"]["parts"]["draft_kv"] > 0
    assert short["token_ids"] == without["token_ids"]
    # Prompt and answer take most of the context, which is that of plain decoding.
    times = (short["plan"]["max_context"] - 400) // short["prompt_tokens"]
    long = peak(int(named[1]) + 2, PROMPT * times)
    (event,) = long["memory"]["events"]
    assert event["after"] in ("head unloaded", "lookup alone")  # as little as a process takes more
    assert "going on without the head" in long["said"]


def test_every_retreat_is_in_the_json(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else takes all memory until the guard has retreated twice."""
    found = run(*ASK)
    assert json.loads(found.stdout)["memory"]["events"] == []
    monkeypatch.setattr(guarding, "EVERY", 1)
    monkeypatch.setattr(MemoryGuard, "_look", lambda guard: 10**12 if guard._at < 2 else 0)
    pressed = run(*ASK)
    assert pressed.exit_code == 0, pressed.stderr
    answer = json.loads(pressed.stdout)
    assert answer["token_ids"] == json.loads(found.stdout)["token_ids"]
    first, second, *_ = answer["memory"]["events"]
    assert (first["kind"], first["before"], first["bytes"]) == ("retreat", "everything", 10**12)
    assert (second["kind"], second["before"]) == ("retreat", first["after"])
    assert second["reason"]
