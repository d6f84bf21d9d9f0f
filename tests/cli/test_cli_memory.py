"""A memory limit for everything: kept to, or refused with the smallest that would do."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest

PROMPT = "def f(x):\n    return x\n" * 12
Ask = Callable[..., "CompletedProcess[bytes]"]


@pytest.fixture
def generate(start: Callable[..., "Popen[bytes]"], tmp_path: Path) -> Ask:
    """Decode in a process of its own, with nothing measured before the first call."""

    def call(memory: int) -> "CompletedProcess[bytes]":
        environment = {**os.environ, "EDGEDEC_CACHE": str(tmp_path)}
        process = start(
            "generate", "--memory", f"{memory}MB", "--json", "--max-new-tokens", 64, PROMPT,
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
    found = re.search(r"give --memory (\d+)MB or more", line)
    assert found is not None, line
    smallest = int(found[1])
    for memory in (smallest, smallest + 60):
        ran = generate(memory)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["peak_memory_bytes"] <= memory * 1e6
    assert generate(smallest - 1).returncode == 2
