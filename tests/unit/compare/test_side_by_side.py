"""The race that a person watches: held to a pace, at once, and the same text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgedec.compare.side_by_side import PLAIN, SPECULATIVE, SideBySide, curve, least_repetitive
from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions
from edgedec.models.demo.heldout import Prompt
from edgedec.pipeline import GenerateOptions
from edgedec.testing import PacedSession

PACE_S = 0.02
TOKENS = 16


@pytest.fixture(scope="module")
def sides():
    with SideBySide("demo", OpenOptions(plan="none")) as found:
        found.hold(PACE_S)
        yield found


def test_both_sides_run_at_once_and_write_the_same(sides: SideBySide) -> None:
    heard: list[tuple[str, str]] = []
    pair = sides.at_once(
        "a",
        "def read_lines(path):",
        GenerateOptions(TOKENS),
        lambda side, event: heard.append((side, event.text)),
    )
    assert pair.identical
    sides = [side for side, _ in heard]
    # Neither waits for the other's end.
    assert sides.index(SPECULATIVE) < len(sides) - 1 - sides[::-1].index(PLAIN)
    assert sides.index(PLAIN) < len(sides) - 1 - sides[::-1].index(SPECULATIVE)
    for side, result in ((PLAIN, pair.plain), (SPECULATIVE, pair.speculative)):
        assert "".join(text for name, text in heard if name == side) == result.text


def test_the_target_is_held_to_its_pace(sides: SideBySide) -> None:
    pair = sides.at_once("a", "import os", GenerateOptions(TOKENS), lambda *token: None)
    assert pair.plain.metrics.tpot_s >= PACE_S
    passes = pair.speculative.metrics.target_passes - 1
    assert pair.speculative.metrics.decode_s >= passes * PACE_S


@pytest.mark.parametrize("length", ["auto", 3])
def test_estimates_know_the_pace(length: int | str) -> None:
    options = OpenOptions(plan="none", draft_length=length, drafter="model")
    with SideBySide("demo", options) as sides:
        sides.hold(PACE_S)
        for side in (PLAIN, SPECULATIVE):
            known = sides._sides[side].engine.policy.lone_row_s
            assert known == (None if side == PLAIN else PACE_S)


def test_plain_decoding_is_not_compared_with_itself() -> None:
    with pytest.raises(InputError, match=r"--drafter none is what .* is compared with: choose"):
        SideBySide("demo", OpenOptions(drafter="none"))


def test_what_is_not_held_runs_at_its_own_speed(sides: SideBySide) -> None:
    def paced(one: SideBySide) -> list[bool]:
        return [isinstance(one._sides[s].engine.target, PacedSession) for s in (PLAIN, SPECULATIVE)]

    with SideBySide("demo", OpenOptions(plan="none")) as found:
        assert paced(found) == [False, False]
        plain = found.write("import os", GenerateOptions(TOKENS, drafter="none"))
    assert plain.metrics.emitted == TOKENS
    assert paced(sides) == [True, True]


def test_the_pace_of_more_rows() -> None:
    assert curve(2.0).at(1) == 2.0
    assert curve(2.0).at(4) > curve(2.0).at(2) > 2.0


def test_ctrl_c_ends_both_threads(sides: SideBySide) -> None:
    def press(side: str, event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sides.at_once("a", "import os", GenerateOptions(2000), press)
    # Both pipelines are free for the next text.
    assert sides.at_once("a", "import os", GenerateOptions(4), lambda *token: None).identical


def test_texts_that_repeat_themselves_are_not_shown() -> None:
    texts = {
        "loops": [1, 2, 3, 4] * 8,
        "plain": list(range(32)),
        "short": [1, 2],
        "half": [*range(20), *range(12)],
    }
    prompts = [Prompt(name, name, name) for name in texts]
    heard: list[tuple[int, int]] = []

    def decode(text: str) -> Any:
        return SimpleNamespace(token_ids=texts[text])

    def choose(count: int) -> list[str]:
        found = least_repetitive(prompts, decode, count, 32, lambda *at: heard.append(at))
        return [prompt.name for prompt in found]

    assert choose(1) == ["plain"]
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert choose(2) == ["plain", "half"]
    # A text that ended early comes last, however little of it is repeated.
    assert choose(3) == ["loops", "plain", "half"]
