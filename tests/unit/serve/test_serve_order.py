"""Whose turn it is: short prompts do not wait behind long ones, and long ones are read in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")

from edgedec import GenerateOptions, Pipeline
from edgedec.serve import order
from edgedec.serve.ticket import Ticket, Work
from edgedec.serve.turns import Turns

CHUNK = 128
SHORT, LONG = [5, 6, 7, 8] * 4, [7 + n % 60 for n in range(1500)]
OPTIONS = GenerateOptions(40, ignore_eos=True)


def ticket(tokens: Sequence[int]) -> Ticket:
    return Ticket([Work(tokens, OPTIONS)], timeout_s=60)


def unread(one: Ticket) -> int:
    return len(one.works[0].prompt)


def turns_of(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each turn of a long prompt (``L`` as it is read) and of a short one that comes second."""
    taken: list[str] = []
    honest = Turns._round

    async def main(pipeline: Pipeline) -> None:
        tickets = {"l": ticket(LONG), "s": ticket(SHORT)}

        def noted(self: Turns, one: Ticket) -> bool:
            name = "l" if one is tickets["l"] else "s"
            more = honest(self, one)
            taken.append(name.upper() if one.to_read else name)
            if taken == ["L"]:
                turns.submit(tickets["s"])
            return more

        monkeypatch.setattr(Turns, "_round", noted)
        turns = Turns(pipeline, parallel=2, queue=2)
        turns.submit(tickets["l"])
        for one in tickets.values():
            while await one.take():
                pass
        turns.close()

    with Pipeline.open(bundle, draft="none", threads=1, parallel=2) as pipeline:
        asyncio.run(main(pipeline))
    return "".join(taken)


def is_fair(turns: str) -> bool:
    """The short prompt waits for one part of the long one, which is read between its tokens."""
    return turns.startswith("Ls") and "Ls" * 5 in turns and "LL" not in turns


def test_a_short_prompt_overtakes_a_long_one(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = turns_of(bundle, monkeypatch)
    assert is_fair(turns), turns
    assert turns.count("L") == len(LONG) // CHUNK


def test_first_come_first_served_is_noticed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: the request that came first has every turn."""
    monkeypatch.setattr(order, "due", lambda tickets, unread: tickets[:1])
    assert not is_fair(turns_of(bundle, monkeypatch))


def read_before_the_long_one(rounds: int) -> int:
    """Tokens of short prompts, one of which comes each turn, that are read before a long one."""

    async def main() -> int:
        long = ticket([1] * 512)
        tickets = [long]
        others = 0
        for _ in range(rounds):
            tickets.append(ticket([1] * 100))
            (one,) = order.due(tickets, unread)
            left = one.to_read or 0
            read = min(CHUNK, left)
            one.to_read = left - read
            order.age([other for other in tickets if other is not one], read)
            if not long.to_read:
                return others
            others += read * (one is not long)
            tickets = [other for other in tickets if other.to_read]
        return others

    return asyncio.run(main())


def test_a_long_prompt_does_not_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < read_before_the_long_one(100) <= 2 * 512
    # Broken twin: nothing ages.
    monkeypatch.setattr(order, "age", lambda tickets, read: None)
    assert read_before_the_long_one(100) > 5000


def test_prompts_of_similar_lengths_are_read_by_turns() -> None:
    async def main() -> list[int]:
        tickets = [ticket([1] * size) for size in (256, 250, 256, 240)]
        # The first reads before the others come.
        assert order.due(tickets[:1], unread) == tickets[:1]
        tickets[0].to_read, found = CHUNK, [0]
        while any(one.to_read != 0 for one in tickets):
            one = order.due(tickets, unread)[-1]
            found.append(tickets.index(one))
            one.to_read = max(0, (one.to_read or 0) - CHUNK)
            order.age([other for other in tickets if other is not one], CHUNK)
        return found

    found = asyncio.run(main())
    assert sorted(found[:4]) == [0, 1, 2, 3] == sorted(found[4:])


def test_texts_that_have_begun_all_have_a_round() -> None:
    async def main() -> None:
        tickets = [ticket([1] * 10) for _ in range(4)]
        for one in tickets[:2]:
            one.to_read = 0
        assert order.due(tickets, unread) == [*tickets[:2], tickets[2]]
        tickets[3].cancel()  # ends at once
        assert order.due(tickets, unread) == [*tickets[:2], tickets[3], tickets[2]]

    asyncio.run(main())


def test_the_age_of_others_follows_what_is_really_read(bundle: Path) -> None:
    # The prefix that a session was thought to hold is gone by the time the prompt is read.
    async def main(pipeline: Pipeline) -> tuple[Ticket, Ticket]:
        turns = Turns(pipeline, parallel=2, queue=2)
        turns.close()
        reading, waiting = ticket(LONG), ticket(LONG)
        reading.to_read = reading.length = 10
        waiting.to_read = waiting.length = len(LONG)
        turns._running += [reading, waiting]
        assert turns._round(reading)
        assert reading.stream is not None
        reading.stream.close()
        return reading, waiting

    with Pipeline.open(bundle, draft="none", threads=1, parallel=2) as pipeline:
        reading, waiting = asyncio.run(main(pipeline))
    assert reading.length == len(LONG) - 1
    assert reading.to_read == reading.length - waiting.overtaken
    assert waiting.overtaken == CHUNK


def test_a_request_that_is_out_of_time_has_a_turn_to_end_in() -> None:
    async def main() -> None:
        tickets = [ticket([1] * size) for size in (10, 20, 30)]
        tickets[2].deadline = 0.0
        assert order.due(tickets, unread) == [tickets[2], tickets[0]]

    asyncio.run(main())
