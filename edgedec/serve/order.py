"""The order of turns: which prompt is read next, and which texts have a round meanwhile.

One chunk of one prompt is read between two rounds of every text that has begun, however many
prompts wait. The shortest prompt comes first, so that it does not wait behind a long one. A prompt
ages by the tokens that are read while it waits: prompts of similar lengths are read by turns, and a
long one is put off by about twice as many tokens as it has itself, however many short ones come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from edgedec.serve.ticket import Ticket


def due(tickets: Sequence[Ticket], unread: Callable[[Ticket], int]) -> list[Ticket]:
    """Return the requests that have a turn now: one that reads its prompt, and all that have begun.

    One that is to end, cancelled or out of time, has a turn as well.

    Args:
        tickets: the requests that take turns, in the order in which they came.
        unread: returns how many tokens of its prompt a new text would have to read.

    """
    for ticket in tickets:
        if ticket.to_read is None:
            ticket.to_read = ticket.length = unread(ticket)
    now = perf_counter()
    begun = [one for one in tickets if not one.to_read or one.cancelled or now > one.deadline]
    reading = [ticket for ticket in tickets if ticket not in begun]
    return [*begun, *([min(reading, key=_rank)] if reading else [])]


def age(tickets: Sequence[Ticket], read: int) -> None:
    """Note that this many tokens of another prompt were read while these waited to read theirs."""
    for ticket in tickets:
        if ticket.to_read:
            ticket.overtaken += read


def _rank(ticket: Ticket) -> tuple[int, int]:
    # Of equals, that of which less was read.
    return ticket.length - ticket.overtaken, -(ticket.to_read or 0)
