"""Whose turn it is: time is shared, short prompts come first, and long ones are read in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgedec import GenerateOptions, Pipeline
from edgedec.generation import turns
from edgedec.serve.settings import Settings
from edgedec.serve.turns import Ticket, Turns, Work

CHUNK = 128
SHORT, LONG = [5, 6, 7, 8] * 4, [7 + n % 60 for n in range(1500)]
OPTIONS = GenerateOptions(40, ignore_eos=True)


def ticket(tokens: Sequence[int]) -> Ticket:
    return Ticket([Work(tokens, OPTIONS)], timeout_s=60)


class Unread(turns.Text):
    """One of no pipeline, which holds nothing of its prompt of this size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def unread(self) -> int:
        return self._size


async def turns_of(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each turn of a long prompt (``L`` as it is read) and of a short one that comes second."""
    taken: list[str] = []
    honest, charge = Ticket.turn, turns.charge
    # A part of a prompt takes as long as three rounds.
    monkeypatch.setattr(
        turns,
        "charge",
        lambda tickets, one, seconds, *, read: charge(tickets, one, 3 if read else 1, read=read),
    )

    with Pipeline.open(bundle, drafter="none", threads=1, parallel=2) as pipeline:
        tickets = {"l": ticket(LONG), "s": ticket(SHORT)}

        def noted(one: Ticket) -> tuple[bool, int]:
            name = "l" if one is tickets["l"] else "s"
            more = honest(one)
            taken.append(name.upper() if one.to_read else name)
            if taken == ["L"]:
                served.submit(tickets["s"])
            return more

        monkeypatch.setattr(Ticket, "turn", noted)
        served = Turns(pipeline, Settings("tiny", parallel=2, queue=2))
        served.submit(tickets["l"])
        for one in tickets.values():
            while await one.take():
                pass
        served.close()
    return "".join(taken)


def is_fair(turns: str) -> bool:
    """The short prompt waits for one part of the long one; then both have half of the time."""
    return turns.startswith("Ls") and "sssL" * 5 in turns and "LL" not in turns.strip("L")


async def test_a_short_prompt_overtakes_a_long_one(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await turns_of(bundle, monkeypatch)
    assert is_fair(taken), taken
    assert taken.count("L") == len(LONG) // CHUNK


async def test_first_come_first_served_is_noticed(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: the request that came first has every turn."""
    monkeypatch.setattr(turns, "due", lambda tickets: tickets[0])
    assert not is_fair(await turns_of(bundle, monkeypatch))


def read_before_the_long_one(rounds: int) -> int:
    """Tokens of short prompts, one of which comes each turn, that are read before a long one."""

    tickets, others = [long := Unread(512)], 0
    for _ in range(rounds):
        tickets.append(Unread(100))
        one = turns.due(tickets)
        left = one.to_read or 0
        read = min(CHUNK, left)
        one.to_read = left - read
        turns.age([other for other in tickets if other is not one], read)
        if not long.to_read:
            return others
        others += read * (one is not long)
        tickets = [other for other in tickets if other.to_read]
    return others


def test_a_long_prompt_does_not_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < read_before_the_long_one(100) <= 2 * 512
    # Broken twin: nothing ages.
    monkeypatch.setattr(turns, "age", lambda tickets, read: None)
    assert read_before_the_long_one(100) > 5000


def test_prompts_of_similar_lengths_are_read_by_turns() -> None:
    tickets = [Unread(size) for size in (256, 250, 256, 240)]
    # The first reads before the others come.
    assert turns.due(tickets[:1]) is tickets[0]
    tickets[0].to_read, found = CHUNK, [0]
    while any(one.to_read != 0 for one in tickets):
        one = turns.due([one for one in tickets if one.to_read != 0])
        found.append(tickets.index(one))
        one.to_read = max(0, (one.to_read or 0) - CHUNK)
        turns.age([other for other in tickets if other is not one], CHUNK)
    assert sorted(found[:4]) == [0, 1, 2, 3] == sorted(found[4:])


# Seconds of a whole part of a prompt and of a round, which emits three tokens.
PART_S, ROUND_S, A_ROUND = 16e-3, 1.5e-3, 3


def slowed(clients: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """How many times as long as alone clients that come at once wait, for a token and for all.

    Args:
        clients: tokens of each one's prompt and of its text.

    """

    def served(clients: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        left = {Unread(prompt): tokens for prompt, tokens in clients}
        first, last, now = dict.fromkeys(left, 0.0), dict.fromkeys(left, 0.0), 0.0
        while waiting := [one for one in left if not last[one]]:
            one = turns.due(waiting)
            read = min(CHUNK, one.to_read or 0)
            seconds = PART_S * read / CHUNK
            reads, one.to_read = bool(read), (one.to_read or 0) - read
            if not one.to_read:
                seconds += ROUND_S
                left[one] -= A_ROUND
                first[one] = first[one] or now + seconds
                last[one] = now + seconds if left[one] <= 0 else 0.0
            now += seconds
            turns.age([other for other in waiting if other is not one], read)
            turns.charge(waiting, one, seconds, read=reads)
        return [(first[one], last[one]) for one in left]

    pairs = zip(served(clients), [served([one])[0] for one in clients], strict=True)
    return [(a[0] / b[0], a[1] / b[1]) for a, b in pairs]


MIXED = ((16, 32), (64, 128), (256, 64), (512, 256))
BESIDE_LONG = ((16, 40), (4000, 40))


@pytest.mark.parametrize("clients", [MIXED, BESIDE_LONG, ((256, 64),) * 4], ids=str)
def test_nobody_is_slowed_by_much_more_than_the_number_of_clients(
    clients: tuple[tuple[int, int], ...],
) -> None:
    # Turns are not infinitely short.
    assert all(one <= 1.2 * len(clients) for both in slowed(clients) for one in both)


def test_a_round_for_each_part_that_is_read_slows_short_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken twin: turns cost nothing, so that texts and prompts alternate."""
    monkeypatch.setattr(turns, "charge", lambda tickets, one, seconds, *, read: _alternate(one))
    assert max(one for both in slowed(BESIDE_LONG) for one in both) > 4


def _alternate(one: turns.Text) -> None:
    one.used_s = (one.used_s or 0.0) + 1


def test_a_request_that_comes_later_makes_up_for_nothing() -> None:
    first, second = Unread(10), Unread(10)
    assert turns.due([first]) is first
    first.to_read = 0
    turns.charge([first], first, 30.0, read=True)
    assert turns.due([first, second]) is first, "both have used as much"
    turns.charge([first, second], first, 1.0, read=False)
    assert turns.due([first, second]) is second
    second.to_read = 0
    turns.charge([first, second], second, 1.5, read=False)
    assert turns.due([first, second]) is first


def test_half_of_the_time_goes_to_reading_however_many_have_begun() -> None:
    tickets = [Unread(10) for _ in range(4)]
    turns.due(tickets)
    for one in tickets[:3]:
        one.to_read = 0
    turns.charge(tickets, tickets[3], 3.0, read=True)
    assert [one.used_s or 0.0 for one in tickets] == [0.0, 0.0, 0.0, 1.0]


async def test_the_age_of_others_follows_what_is_really_read(bundle: Path) -> None:
    # The prefix that a session was thought to hold is gone by the time the prompt is read.
    with Pipeline.open(bundle, drafter="none", threads=1, parallel=2) as pipeline:
        served = Turns(pipeline, Settings("tiny", parallel=2, queue=2))
        served.close()
        reading, waiting = ticket(LONG), ticket(LONG)
        reading.turns = served
        reading.to_read = reading.length = 10
        waiting.to_read = waiting.length = len(LONG)
        served.running += [reading, waiting]
        assert served._turn(reading)
        assert reading.stream is not None
        reading.stream.close()
    assert reading.length == len(LONG) - 1
    assert reading.to_read == reading.length - waiting.overtaken
    assert waiting.overtaken == CHUNK


def test_a_request_that_is_to_end_comes_first() -> None:
    tickets = [Unread(size) for size in (10, 20, 30)]
    tickets[2].deadline = 0.0
    assert turns.due(tickets) is tickets[2]
    tickets[1].leave()
    assert turns.due(tickets) is tickets[1]


async def rounds_before_the_first_token_is_sent(bundle: Path, *, stream: bool = True) -> int:
    """Rounds that the decoding thread runs while the first token waits to be sent."""

    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        one = Ticket([Work(SHORT, OPTIONS)], timeout_s=60, most_unread=100 if stream else None)
        served = Turns(pipeline, Settings("tiny", parallel=1, queue=1))
        served.submit(one)
        events = sum(len(news.events) for news in await one.take())
        await asyncio.sleep(0.2)
        events += sum(len(news.events) for news in one._news)
        one.sent()
        while await one.take():
            pass
        served.close()
        return events


async def test_a_first_token_is_sent_before_the_next_round(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.serve.turns._SENDING_S", 50)
    assert await rounds_before_the_first_token_is_sent(bundle) == 1
    assert await rounds_before_the_first_token_is_sent(bundle, stream=False) > 1
    # Broken twin: it does not wait.
    monkeypatch.setattr("edgedec.serve.turns._SENDING_S", 0)
    assert await rounds_before_the_first_token_is_sent(bundle) > 1
