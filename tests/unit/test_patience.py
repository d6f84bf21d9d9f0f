"""No test gives another thread or process so little time that a busy machine could use it up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# Less than a second is a glimpse, of something that is not to come. Longer ones are for what is to
# come, and `waiting.LIMIT_S` is the limit that no machine reaches.
GLIMPSE_S, SHORTEST_S = 1, 60
# What is to hang, or waits in virtual time or for a network that others do not have.
MEANT = {
    ("tests/unit/overlap/test_virtual_clock.py", "signal.wait(10)"),
}


def hasty(source: str) -> Iterator[ast.Call]:
    """Yield calls that wait for a number of seconds between the two limits."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        given = [one.value for one in call.keywords if one.arg == "timeout"]
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("wait", "join"):
            given += call.args[:1]
        for value in given:
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and GLIMPSE_S <= seconds < SHORTEST_S:
                yield call


def test_nothing_is_awaited_for_a_short_time(repository: Path) -> None:
    found = {
        (file.relative_to(repository).as_posix(), ast.unparse(call))
        for file in (repository / "tests").rglob("*.py")
        if file != Path(__file__)
        for call in hasty(file.read_text("utf-8"))
        if not ast.unparse(call.func).endswith(("generate", "Options"))  # of the product
    }
    assert found == MEANT, "wait for `waiting.LIMIT_S`, or use `waiting.until`"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("done.wait(20)", 1),
        ("thread.join(5.0)", 1),
        ("httpx.get(url, timeout=30)", 1),
        ("done.wait(0.05)", 0),
        ("done.wait(60)", 0),
        ("done.wait(LIMIT_S)", 0),
        ("', '.join(names)", 0),
    ],
)
def test_what_counts_as_short(source: str, count: int) -> None:
    assert len(list(hasty(source))) == count
