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


# Stop strings, limit, what comes late; rounds, what is shown of each token, why and how it ends.
ENDS: dict[str, tuple[tuple[str, ...], int, str, list[list[int]], list[list[str]], str, str]] = {
    "EOS inside an accepted run is kept and has no text":
        ((), 9, "", [[0, 1, EOS, 3, 3]], [["a", "b", ""]], "eos", "ab"),
    "a limit inside an accepted run":
        ((), 3, "", [[0], [1, 3, 0]], [["a"], ["b", "c"]], "length", "abc"),
    "EOS as the last token of the limit": ((), 2, "", [[0, EOS]], [["a", ""]], "eos", "a"),
    "a stop string as the last token of the limit":
        (("b",), 2, "", [[0, 1]], [["a", ""]], "stop", "a"),
    "a stop string over several tokens and rounds":
        (("STOP",), 9, "", [[0, 8], [9, 1]], [["a", ""], [""]], "stop", "a"),
    "a stop string inside a token": (("STOP",), 9, "", [[0, 7, 0]], [["a", "x"]], "stop", "ax"),
    "a beginning that leads nowhere is shown after all":
        (("STOP",), 9, "", [[8, 0], [8, EOS]], [["", "STa"], ["", "ST"]], "eos", "STaST"),
    "a beginning held back at the limit is shown":
        (("STOP",), 2, "", [[0, 8]], [["a", "ST"]], "length", "aST"),
    "the string that is complete first counts": (("abc", "b"), 9, "", [[4]], [["a"]], "stop", "a"),
    "and over several tokens": (("abc", "b"), 9, "", [[0, 1, 3]], [["", "a"]], "stop", "a"),
    "of those the longest": (("b", "ab"), 9, "", [[3, 0, 1]], [["c", "", ""]], "stop", "c"),
    "overlapping beginnings":
        (("aab",), 9, "", [[0, 0, 0, 1]], [["", "", "a", ""]], "stop", "a"),
    "text that comes with the flush":
        ((), 9, "\ufffd", [[0, EOS]], [["a", "\ufffd"]], "eos", "a\ufffd"),
    "a stop string that the flush completes":
        (("STOP",), 9, "OPq", [[8, EOS]], [["", ""]], "stop", ""),
    # The token's last bytes begin a character; the detokeniser would give them with the flush.
    "nothing follows a stop string that a token completes amid a character":
        (("STOP",), 9, "\ufffd", [[0, 8, 9]], [["a", "", ""]], "stop", "a"),
    "nor where the same token meets the limit":
        (("STOP",), 3, "\ufffd", [[0, 8, 9]], [["a", "", ""]], "stop", "a"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("stops", "limit", "late", "rounds", "shown", "reason", "text"), ENDS.values(), ids=ENDS
)
def test_where_a_text_ends(
    stops: tuple[str, ...],
    limit: int,
    late: str,
    rounds: list[list[int]],
    shown: list[list[str]],
    reason: str,
    text: str,
) -> None:
    stop = StopRule(eos_ids=[EOS], max_new_tokens=limit, stop_strings=stops, stream=Pieces(late))
    for count, (tokens, pieces) in enumerate(zip(rounds, shown, strict=True), 1):
        assert stop.cut(tokens) == (tokens[: len(pieces)], pieces)
        assert (stop.remaining > 0) == (count < len(rounds))
    assert (stop.reason, stop.finish()) == (reason, text)


def test_a_beginning_held_back_when_someone_else_ends_the_text() -> None:
    stop = StopRule(max_new_tokens=9, stop_strings=["STOP"], stream=Pieces())
    stop.cut([0, 8])
    stop.reason = "timeout"
    assert stop.remaining == 0
    assert stop.finish() == "aST"
    assert stop.cut([0]) == ([], [])


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
