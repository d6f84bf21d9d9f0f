"""``edgedec demo``: what it says before and after."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
ASK = ["demo", "--count", 1, "-n", 8]


def test_it_begins_with_why_the_target_is_slowed_and_ends_with_a_sentence(run: Run) -> None:
    shown = run(*ASK, "--pace", 2)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    assert words.startswith("The target is so small that nobody could watch it, so it is slowed")
    assert "slowed down to 2 ms for one token" in words
    last = shown.stdout.splitlines()[-1]
    assert re.fullmatch(
        r"Both ways gave the same 8 tokens; with the draft it was [\d.]+ times as fast\.", last
    )
    assert shown.stderr == "next: edgedec generate demo 'def __lt__(self, other):'\n"


def test_at_its_own_speed_it_says_nothing_of_a_pace(run: Run) -> None:
    shown = run(*ASK, "--pace", 0)
    assert shown.stdout.startswith("Each function is continued twice: plainly, and with a draft.")
    assert "slowed" not in shown.stdout
