"""The pair that ships, for many clients at once, in a control group of the memory that it has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import serving
from texts_at_once import BLIND, held, together

from benchmarks.sections.control_group import ControlGroup, limited

pytestmark = [pytest.mark.slow, pytest.mark.cgroup]
LIMIT, VOCABULARY = 240_000_000, 4000
MEMORY = "--memory", f"{LIMIT // 10**6}MB"
WITH_MODEL = "--plan", "none", "--drafter", "model", "--threads", "1"
DEMO = Path("demo")


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    with limited(LIMIT) as found:
        if found is None:
            pytest.skip("no control group can be made here")
        yield found


def check(group: ControlGroup, clients: int, *options: str) -> None:
    """Serve texts of a quarter to nine tenths of the context, none over the limit or refused."""
    python = [*group.entering, sys.executable, "-m", "edgedec"]
    with serving(DEMO, *options, python=python) as server:
        assert held(server) <= LIMIT
        for _ in range(2):  # the second time beside what the first has left
            most, answers = together(server, clients, 0.25, 0.9, VOCABULARY)
            print(f"{clients} clients: {most / 1e6:.0f} MB")
            assert all(one.is_success for one in answers)
            assert most <= LIMIT


@pytest.mark.parametrize("clients", [2, 4, 8, 16])
def test_with_a_draft_model(group: ControlGroup, clients: int) -> None:
    check(group, clients, *MEMORY, *WITH_MODEL)


def test_several_at_a_time(group: ControlGroup) -> None:
    check(group, 8, *MEMORY, *WITH_MODEL, "--parallel", "4")


def test_what_the_group_has_free(group: ControlGroup) -> None:
    check(group, 8, "--memory", "auto", *WITH_MODEL)


def test_a_plan_for_this_memory(
    group: ControlGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts one text; the server counts those that come."""
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path))
    words = "plan", "demo", *MEMORY
    made = subprocess.run([sys.executable, "-m", "edgedec", *words], check=True, text=True,
                          capture_output=True)  # fmt: skip
    assert made.stdout
    check(group, 8, *MEMORY)


def test_a_twin_that_counts_one_text_exceeds_the_limit() -> None:
    with serving(
        DEMO, *MEMORY, *WITH_MODEL, "--parallel", "4",
        python=[sys.executable, "-c", BLIND],
    ) as server:  # fmt: skip
        most, _ = together(server, 16, 0.5, 0.9, VOCABULARY)
        print(f"{most / 1e6:.0f} MB")
        assert most > LIMIT
