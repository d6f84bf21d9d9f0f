"""Any text, any stop strings, cut into rounds in any way: the same tokens, text and reason."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import find, given
from hypothesis import strategies as st

from edgedec.decoding.stopping import StopRule

EOS = 0
ALPHABET = "ab"


class Pieces:
    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    def push(self, token: int) -> str:
        return self._pieces[token - 1]

    def flush(self) -> str:
        return ""


class Leaky(StopRule):
    """A broken twin: shows text at once."""

    def _undecided(self, text: str) -> int:
        return 0


class ShortSighted(StopRule):
    """A broken twin: holds back only whole tokens that begin a stop string."""

    def _undecided(self, text: str) -> int:
        return len(text) if any(stop.startswith(text) for stop in self._stops) else 0


Case = tuple[list[str], list[int], list[str], int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Pieces of a vocabulary, tokens (0 is EOS), stop strings, a limit."""
    pieces = draw(st.lists(st.text(ALPHABET, max_size=3), min_size=1, max_size=4))
    tokens = draw(st.lists(st.integers(0, len(pieces)), max_size=12))
    tokens = [token or draw(st.sampled_from([0, 1])) for token in tokens]
    stops = draw(st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=3))
    return pieces, tokens, stops, draw(st.integers(1, 12))


def reference(case: Case) -> tuple[int, str, str | None]:
    """Tokens kept, text and reason, character by character over all that was said."""
    pieces, tokens, stops, limit = case
    text = ""
    for kept, token in enumerate(tokens, 1):
        if token == EOS:
            return kept, text, "eos"
        for char in pieces[token - 1]:
            text += char
            ended = [stop for stop in stops if text.endswith(stop)]
            if ended:
                return kept, text[: -max(map(len, ended))], "stop"
        if kept == limit:
            return kept, text, "length"
    return len(tokens), text, None


def run(
    kind: type[StopRule], case: Case, rounds: Sequence[int]
) -> tuple[int, str, str | None, list[str]]:
    """The same, decoded in rounds of these sizes, and what a reader had seen when."""
    pieces, tokens, stops, limit = case
    stop = kind(eos_ids=[EOS], max_new_tokens=limit, stop_strings=stops, stream=Pieces(pieces))
    kept: list[int] = []
    shown, seen = "", []
    at, sizes = 0, iter(rounds)
    while at < len(tokens) and stop.reason is None:
        size = next(sizes, 1)
        more, texts = stop.cut(tokens[at : at + size])
        assert len(more) == len(texts)
        kept += more
        for text in texts:
            shown += text
            seen.append(shown)
        at += size
    assert kept == tokens[: len(kept)]
    reason = stop.reason
    return len(kept), stop.finish(), reason, seen


def agrees(kind: type[StopRule], case: Case, rounds: Sequence[int]) -> bool:
    length, text, reason, seen = run(kind, case, rounds)
    whole = (length, text, reason) == reference(case)
    return whole and all(text.startswith(prefix) for prefix in seen)


@given(cases(), st.lists(st.integers(1, 5), max_size=12))
def test_any_grouping_gives_the_same_and_shows_nothing_it_takes_back(
    case: Case, rounds: list[int]
) -> None:
    assert agrees(StopRule, case, rounds)


@given(cases())
def test_an_ended_text_has_shown_everything(case: Case) -> None:
    _, text, reason, seen = run(StopRule, case, [3] * 12)
    if reason is not None:
        assert (seen or [""])[-1] == text


def test_the_broken_twins_are_caught() -> None:
    for twin in (Leaky, ShortSighted):
        find(cases(), lambda case, twin=twin: not agrees(twin, case, []))  # type: ignore[misc]
