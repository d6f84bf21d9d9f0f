"""How much of a long text the draft sees, chosen by what it costs and brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from drafting_table import VOCAB, Table

from edgedec.decoding import drafting
from edgedec.decoding.drafting._window_choice import SCORED, Evidence, Trial, WindowChoice
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.tree import TokenTree

LONG = [(7 * i + i // 5) % 13 for i in range(1200)]


class Timed(Table):
    """A table in virtual time: a draft pass takes longer the more of the text it sees."""

    def __init__(self, *, token_s: float, context: int, choose: bool = True) -> None:
        super().__init__("model", prompt=LONG, context=context)
        self.now = self.read_s = 0.0
        self.session = self.draft.open(2048)
        forward, prefill = self.session.forward, self.session.prefill

        def passed(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            self.now += 1.0 + token_s * self.session.length
            return forward(tree, start, want)

        def read(tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
            self.now += 0.1 * len(tokens)
            self.read_s += 0.1 * len(tokens)
            prefill(tokens, on_chunk)

        self.session.forward = passed  # type: ignore[method-assign]
        self.session.prefill = read  # type: ignore[method-assign]
        parts = DrafterParts(VOCAB, self.session, choose_window=choose, clock=lambda: self.now)
        self.drafter = drafting.create("model", parts)
        self.begin(LONG)

    def decode(self, rounds: int) -> set[int]:
        """Return the windows that the last fifty rounds drafted with."""
        seen = []
        for _ in range(rounds):
            draft = self.propose(3, 3)
            self.now += 8.0
            self.settle(draft)
            if draft.drafted:
                seen.append(draft.window)
        return set(seen[-50:])

    def check(self) -> None:
        """The window's own tests look at what the session holds."""


def test_less_is_seen_where_that_is_quicker_and_as_good() -> None:
    assert Timed(token_s=0.004, context=3).decode(200) == {128}


def test_more_is_seen_where_the_draft_needs_it() -> None:
    """The draft is right where it sees the last 700 tokens; passes cost nearly the same."""
    assert Timed(token_s=0.0001, context=700).decode(450) == {2048}


def test_a_better_guess_is_not_worth_any_price() -> None:
    assert 2048 not in Timed(token_s=0.05, context=700).decode(450)


def test_nothing_is_compared_unless_asked() -> None:
    fixed = Timed(token_s=0.004, context=3, choose=False)
    assert fixed.decode(100) == {2048}


def test_comparing_takes_a_small_share_of_the_time() -> None:
    table = Timed(token_s=0.0, context=3)
    table.decode(50)
    began, read_s = table.now, table.read_s
    tokens = len(table.sampler.history)
    table.decode(500)
    # What a window that slides reads again is one token for each token of the text.
    compared = table.read_s - read_s - 0.1 * (len(table.sampler.history) - tokens)
    assert compared < 0.04 * (table.now - began)


def test_a_choice_is_kept_for_the_next_text() -> None:
    table = Timed(token_s=0.004, context=3)
    table.decode(100)
    table.begin(LONG[100:])
    assert table.decode(12) == {128}


class TestWindowChoice:
    def test_the_first_window_is_near_512_whatever_the_session_holds(self) -> None:
        assert WindowChoice(2048).sizes == (128, 512, 2048)
        assert [WindowChoice(n).size for n in (100, 400, 512, 700, 2048)] == [
            100,
            400,
            512,
            512,
            512,
        ]

    def test_a_text_that_every_window_shows_whole_is_not_compared(self) -> None:
        choice = WindowChoice(2048)
        drafted(choice, 20)
        assert choice.due(128 + SCORED) is None
        assert choice.due(129 + SCORED) == 128
        choice = WindowChoice(2048)
        drafted(choice, 15)
        assert choice.due(5000) is None  # too early

    def test_the_quicker_of_two_equals_wins_and_the_loser_is_tried_more_rarely(self) -> None:
        choice = WindowChoice(2048)
        waits = []
        for _ in range(4):
            rounds = 0
            while choice.due(5000) is None:
                drafted(choice, 1)
                rounds += 1
            waits.append(rounds)
            choice._times_tried[128] = 0  # always the same one
            assert not choice.prefers(128, Trial(30, 0.001), Trial(30, 0.0011))
            choice.paid(128, 0.01)
        assert waits[0] == 16
        assert waits[1] < waits[2] < waits[3]
        assert choice.prefers(128, Trial(30, 0.001), Trial(30, 0.0005))

    @pytest.mark.parametrize(("right", "kept"), [(30, False), (44, True)])
    def test_acceptance_is_weighed_against_the_time_of_a_pass(self, right: int, kept: bool) -> None:
        choice = WindowChoice(2048)
        drafted(choice, 20)
        assert choice.prefers(2048, Trial(28, 0.001), Trial(right, 0.002)) == kept

    def test_evidence_adds_up_and_fades(self) -> None:
        seen = Evidence()
        seen.add(24, 30)
        once = seen.chances()
        for _ in range(5):
            seen.add(24, 30)
        assert 24 / SCORED < seen.chances()[0] < once[0] < once[1] < seen.chances()[1] < 30 / SCORED
        for _ in range(12):
            seen.add(30, 24)
        assert seen.chances()[0] > seen.chances()[1]


def drafted(choice: WindowChoice, rounds: int) -> None:
    for _ in range(rounds):
        choice.round(3, 0.003, 0.009)


def test_a_trial_leaves_the_session_where_drafting_goes_on() -> None:
    """What is drafted after comparisons is what a fresh session of the same window drafts."""
    table = Timed(token_s=0.004, context=3)
    table.decode(60)
    draft = table.propose(3, 3)
    assert draft.window == 128
    other = table.draft.open(2048)
    drafter = drafting.create("model", replace(DrafterParts(VOCAB), draft=other))
    drafter.begin(table.sampler.history, table.sampler)
    table.drafter = drafter
    while not (fresh := table.propose(3, 3)).drafted:  # a long prompt is read over several rounds
        pass
    assert fresh.tree.tokens == draft.tree.tokens
