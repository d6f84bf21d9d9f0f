"""Lines of texts: first come, first served; nobody is lost, and nobody waits for himself."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from waiting import LIMIT_S, Apart, until

from edgedec.errors import StateError
from edgedec.generation.queue import Line, Queue, Round, Ticket


def stranded(line: Line) -> bool:
    """Whether one that has its turn was never told."""
    first = [ticket for ticket in list(line.tickets) if line.has_turn(ticket)]
    return any(not ticket.called for ticket in first)


class Losing(Line):
    """Broken twin: nobody is told when another leaves."""

    def leave(self, ticket: Ticket) -> None:
        self.tickets.pop(ticket, None)


class LastFirst(Line):
    """Broken twin: the last one that came is let in first."""

    def join(self, ticket: Ticket) -> None:
        others = list(self.tickets)[self.count :]
        for other in others:
            self.tickets.pop(other)
        self.tickets[ticket] = None
        self.tickets.update(dict.fromkeys(others))
        self.call_first()


def any_order(kind: Callable[[int], Line], seed: int) -> list[str]:
    """Let tickets join and leave in a random order; return what went wrong."""
    chance, count = random.Random(seed), 1 + seed % 3
    line, order, came, wrong = kind(count), list[int](), 0, list[str]()
    inside: dict[int, Ticket] = {}
    for _ in range(60):
        if chance.random() < 0.5 or not inside:
            ticket = Ticket(lambda number=came: order.append(number))
            inside[came] = ticket
            came += 1
            line.join(ticket)
        else:  # from wherever in the line, as one that is cancelled
            line.leave(inside.pop(chance.choice(list(inside))))
        told = [number for number in inside if number in order]
        if told != list(inside)[:count]:
            wrong.append(f"{told} have their turn, of {list(inside)}")
        if stranded(line):
            wrong.append("one was not told")
    return wrong


@pytest.mark.parametrize("seed", range(30))
def test_the_first_have_their_turn_in_any_order_of_coming_and_going(seed: int) -> None:
    assert any_order(Line, seed) == []


@pytest.mark.parametrize("twin", [Losing, LastFirst])
def test_a_line_that_loses_one_or_pushes_in_is_noticed(twin: type[Line]) -> None:
    assert all(any_order(twin, seed) for seed in range(5))


def test_each_is_called_once() -> None:
    calls: list[int] = []
    line, tickets = Line(1), [Ticket(lambda: calls.append(1)) for _ in range(3)]
    for ticket in tickets:
        line.join(ticket)
    line.call_all()
    line.call_all()
    line.leave(tickets[0])
    assert len(calls) == 3


def most_inside(line: Line, count: int, threads: int, rounds: int) -> int:
    """Most threads that had their turn at the same time; each waits for others to come."""
    inside, most, left, guard = 0, 0, threads, threading.Lock()

    def work() -> None:
        nonlocal inside, most, left
        for _ in range(rounds):
            ticket = Ticket()
            line.enter(ticket)
            with guard:
                inside += 1
                most = max(most, inside)
            until(lambda: len(line) > count or left <= count)
            with guard:
                inside -= 1
            line.leave(ticket)
        left -= 1

    for one in [Apart(work) for _ in range(threads)]:
        one.result()
    return most


@pytest.mark.parametrize("count", [1, 2])
def test_threads_have_their_turns_and_all_end(count: int) -> None:
    assert most_inside(Line(count), count, threads=6, rounds=20) == count


def test_a_line_that_lets_in_one_too_many_is_noticed() -> None:
    assert most_inside(Line(2), 1, threads=4, rounds=5) == 2


def test_one_that_is_interrupted_while_it_waits_leaves_the_line() -> None:
    """Ctrl-C arrives in the middle of the wait."""

    class Interrupted(Ticket):
        def wait(self, seconds: float | None = None) -> None:
            raise KeyboardInterrupt

    line, first, last = Line(1), Ticket(), Ticket()
    line.join(first)
    with pytest.raises(KeyboardInterrupt):
        line.enter(Interrupted())
    line.join(last)
    line.leave(first)
    assert line.has_turn(last)


class Watched(Ticket):
    """Says whether its thread waits."""

    waits = False

    def wait(self, seconds: float | None = None) -> None:
        self.waits = True
        super().wait(seconds)


class TestWhoWouldWaitForever:
    def test_a_thread_that_waits_for_itself(self) -> None:
        line, mine = Line(1), Ticket()
        line.enter(mine)
        with pytest.raises(StateError, match="another text is being decoded: read its stream"):
            line.enter(Ticket())
        assert len(line) == 1

    def test_two_threads_that_wait_for_each_other(self) -> None:
        line, mine, again = Line(2), Ticket(), Watched()
        line.enter(mine)
        apart = Apart(lambda: (line.enter(Ticket()), line.enter(again)))
        until(lambda: again.waits)
        with pytest.raises(StateError):
            line.enter(Ticket())
        line.leave(mine)  # as the error makes this thread do
        apart.result()

    def test_two_threads_that_begin_to_wait_for_each_other_at_once(self) -> None:
        for _ in range(50):
            line, both = Line(2), threading.Barrier(2)

            def twice(line: Line = line, both: threading.Barrier = both) -> bool:
                first, second = Ticket(), Ticket()
                line.enter(first)
                both.wait(LIMIT_S)
                try:
                    line.enter(second)
                except StateError:
                    line.leave(first)
                    return False
                line.leave(first)
                line.leave(second)
                return True

            found = [one.result() for one in [Apart(twice), Apart(twice)]]
            assert found != [True, True]
            assert len(line) == 0

    def test_a_thread_that_has_one_of_two_turns_waits_for_the_other(self) -> None:
        line, other, third = Line(2), Ticket(), Watched()
        line.enter(Ticket())
        Apart(lambda: line.enter(other)).result()
        apart = Apart(lambda: (until(lambda: third.waits), line.leave(other)))
        line.enter(third)
        assert line.has_turn(third)
        apart.result()

    def test_one_that_nobody_owns_is_waited_for(self) -> None:
        line, theirs, mine = Line(1), Ticket(), Ticket()
        line.join(theirs)
        apart = Apart(lambda: (until(lambda: len(line) == 2), line.leave(theirs)))
        line.enter(mine)
        apart.result()


class TestQueue:
    def test_rounds_are_one_at_a_time_in_the_order_in_which_they_came(self) -> None:
        queue, order = Queue(3), list[int]()
        threads = []

        def round(number: int) -> None:
            with Round(queue):
                order.append(number)

        with Round(queue):
            for number in range(5):
                threads.append(Apart(lambda number=number: round(number)))
                until(lambda number=number: len(queue.rounds) == number + 2)
            assert order == []
        for one in threads:
            one.result()
        assert order == [0, 1, 2, 3, 4]

    def test_a_round_inside_a_round_is_refused(self) -> None:
        queue = Queue(1)
        with Round(queue), pytest.raises(StateError, match="another text"), Round(queue):
            pass
        with Round(queue):
            pass

    def test_closing_ends_every_wait(self) -> None:
        queue = Queue(1)
        with Round(queue):
            waits = Apart(lambda: Round(queue).__enter__())
            until(lambda: len(queue.rounds) == 2)
            queue.close()
            with pytest.raises(StateError, match="the pipeline is closed"):
                waits.result()
        for call in (lambda: Round(queue).__enter__(), lambda: queue.submit(None, queue.close)):
            with pytest.raises(StateError, match="the pipeline is closed"):
                call()
        with Round(queue, closing=True):
            pass

    def test_a_second_close_waits_for_the_first(self) -> None:
        queue, order = Queue(1), list[str]()

        def closes(name: str) -> None:
            queue.close()
            with Round(queue, closing=True):
                order.append(name)

        with Round(queue):
            first = Apart(lambda: closes("first"))
            until(lambda: len(queue.rounds) == 2)
            second = Apart(lambda: closes("second"))
            until(lambda: len(queue.rounds) == 3)
            assert order == []
        first.result()
        second.result()
        assert order == ["first", "second"]

    def test_a_round_alone_passes_no_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = list[str]()
        for name in ("join", "leave", "call_first", "enter"):
            honest = getattr(Line, name)
            monkeypatch.setattr(
                Line, name,
                lambda *given, name=name, honest=honest: (calls.append(name), honest(*given))[1],
            )  # fmt: skip
        queue = Queue(1)
        alone = Round(queue)
        for _ in range(3):
            with alone:
                assert len(queue.rounds) == 1
        assert calls == []
        with alone:  # the control: another one waits
            other = Apart(lambda: Round(queue).__enter__())
            until(lambda: len(queue.rounds) == 2)
        other.result()
        assert {"enter", "call_first"} <= set(calls)


def test_a_ticket_may_leave_at_any_line_of_another_thread_s_or_its_own() -> None:
    """Finalisers and signal handlers run between two instructions, also of the line itself."""
    seen = 0
    for place in range(200):
        line, told, steps = Line(1), list[int](), 0
        tickets = [Ticket(lambda number=n, told=told: told.append(number)) for n in range(4)]
        for ticket in tickets[:3]:
            line.join(ticket)

        def at(frame: Any, event: str, arg: object) -> Any:
            nonlocal steps
            if frame.f_code.co_filename.endswith("generation/queue.py") and event == "line":
                steps += 1
                if steps == place + 1:  # noqa: B023
                    sys.settrace(None)
                    line.leave(tickets[1])  # noqa: B023
            return at

        sys.settrace(at)
        try:
            line.leave(tickets[0])
            line.join(tickets[3])
        finally:
            sys.settrace(None)
        line.leave(tickets[1])
        seen = max(seen, steps)
        assert told[:1] == [0]
        assert line.has_turn(tickets[2])
        assert 2 in told
        assert 3 not in told
        if steps <= place:
            break
    assert 8 < seen < 199
