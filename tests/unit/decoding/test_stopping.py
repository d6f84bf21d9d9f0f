"""Where a text ends, and what may be shown before that is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgedec.decoding.stopping import StopRule
from edgedec.errors import InputError

EOS = 99
PIECES = {0: "a", 1: "b", 2: "ab", 3: "c", 4: "abc", 5: "\n", 6: "", 7: "xSTOPy", 8: "ST", 9: "OP"}


class Pieces:
    """A detokeniser of a fixed table; ``late`` is text that comes with the flush only."""

    def __init__(self, late: str = "") -> None:
        self.late = late

    def push(self, token: int) -> str:
        return PIECES[token]

    def flush(self) -> str:
        late, self.late = self.late, ""
        return late


def rule(*stops: str, limit: int = 100, late: str = "") -> StopRule:
    return StopRule(eos_ids=[EOS], max_new_tokens=limit, stop_strings=stops, stream=Pieces(late))


def test_eos_inside_an_accepted_run_is_kept_and_has_no_text() -> None:
    stop = rule()
    assert stop.cut([0, 1, EOS, 3, 3]) == ([0, 1, EOS], ["a", "b", ""])
    assert (stop.reason, stop.remaining, stop.finish()) == ("eos", 0, "ab")


def test_a_limit_inside_an_accepted_run() -> None:
    stop = rule(limit=3)
    assert stop.cut([0]) == ([0], ["a"])
    assert stop.remaining == 2
    assert stop.cut([1, 3, 0]) == ([1, 3], ["b", "c"])
    assert (stop.reason, stop.remaining, stop.finish()) == ("length", 0, "abc")


def test_eos_as_the_last_token_of_the_limit_is_eos() -> None:
    stop = rule(limit=2)
    stop.cut([0, EOS])
    assert stop.reason == "eos"


def test_a_stop_string_as_the_last_token_of_the_limit_is_a_stop() -> None:
    stop = rule("b", limit=2)
    assert stop.cut([0, 1]) == ([0, 1], ["a", ""])
    assert stop.reason == "stop"


def test_a_stop_string_over_several_tokens_and_rounds() -> None:
    stop = rule("STOP")
    assert stop.cut([0, 8]) == ([0, 8], ["a", ""])
    assert stop.remaining > 0
    assert stop.cut([9, 1]) == ([9], [""])
    assert (stop.reason, stop.finish()) == ("stop", "a")


def test_a_stop_string_inside_a_token() -> None:
    stop = rule("STOP")
    assert stop.cut([0, 7, 0]) == ([0, 7], ["a", "x"])
    assert (stop.reason, stop.finish()) == ("stop", "ax")


def test_a_beginning_that_leads_nowhere_is_shown_after_all() -> None:
    stop = rule("STOP")
    assert stop.cut([8, 0]) == ([8, 0], ["", "STa"])
    assert stop.cut([8, EOS])[1] == ["", "ST"]
    assert stop.finish() == "STaST"


def test_a_beginning_held_back_at_the_limit_is_shown() -> None:
    stop = rule("STOP", limit=2)
    assert stop.cut([0, 8])[1] == ["a", "ST"]
    assert (stop.reason, stop.finish()) == ("length", "aST")


def test_a_beginning_held_back_when_someone_else_ends_the_text() -> None:
    stop = rule("STOP")
    stop.cut([0, 8])
    stop.reason = "timeout"
    assert stop.remaining == 0
    assert stop.finish() == "aST"
    assert stop.cut([0]) == ([], [])


def test_the_string_that_is_complete_first_counts_and_of_those_the_longest() -> None:
    one, several = rule("abc", "b"), rule("abc", "b")
    assert one.cut([4])[1] == ["a"]
    assert several.cut([0, 1, 3])[1] == ["", "a"]
    longest = rule("b", "ab")
    assert longest.cut([3, 0, 1])[1] == ["c", "", ""]
    assert longest.finish() == "c"


def test_overlapping_beginnings() -> None:
    stop = rule("aab")
    assert stop.cut([0, 0, 0, 1])[1] == ["", "", "a", ""]
    assert stop.finish() == "a"


def test_text_that_comes_with_the_flush() -> None:
    stop = rule(late="\ufffd")
    assert stop.cut([0, EOS])[1] == ["a", "\ufffd"]
    assert stop.finish() == "a\ufffd"
    stop = rule("STOP", late="OPq")
    assert stop.cut([8, EOS])[1] == ["", ""]
    assert (stop.reason, stop.finish()) == ("stop", "")


def test_nothing_follows_a_stop_string_that_a_token_completes_amid_a_character() -> None:
    # The token's last bytes begin a character; the detokeniser would give them with the flush.
    stop = rule("STOP", late="\ufffd")
    assert stop.cut([0, 8, 9]) == ([0, 8, 9], ["a", "", ""])
    assert (stop.reason, stop.finish()) == ("stop", "a")
    stop = rule("STOP", late="\ufffd", limit=3)  # the limit is met by the same token
    assert stop.cut([0, 8, 9]) == ([0, 8, 9], ["a", "", ""])
    assert (stop.reason, stop.finish()) == ("stop", "a")


def test_without_a_stream_there_are_tokens_only() -> None:
    stop = StopRule(eos_ids=[EOS], max_new_tokens=4)
    assert stop.cut([1, 2]) == ([1, 2], ["", ""])
    assert stop.finish() == ""
    assert stop.reason == "cancelled"


@pytest.mark.parametrize(
    ("limit", "stops", "message"),
    [
        (0, (), "max_new_tokens 0: expected 1 or more"),
        (5, ("a", ""), "an empty stop string: expected at least one character"),
        (5, ("a",), "stop strings need the text"),
    ],
)
def test_bad_input_is_one_clear_line(limit: int, stops: Sequence[str], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        StopRule(max_new_tokens=limit, stop_strings=stops)
