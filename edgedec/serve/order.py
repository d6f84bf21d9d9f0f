"""The order of turns: how requests share the time, and which prompt is read next.

Every request has the same share of the time (start-time fair queueing): the next turn goes to the
one that has used least of its share. Requests whose prompts are being read put their shares
together, at least half of the time, and read one prompt after another: the shortest first, so that
it does not wait behind a long one. A prompt ages by the tokens that are read while it waits:
prompts of similar lengths are read by turns, and a long one is put off by about twice as many
tokens as it has itself, however many short ones come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from edgedec.serve.ticket import Ticket


def due(tickets: Sequence[Ticket], unread: Callable[[Ticket], int]) -> Ticket:
    """Return the request whose turn it is; first one that is to end, cancelled or out of time.

    Args:
        tickets: the requests that take turns, in the order in which they came.
        unread: returns how many tokens of its prompt a new text would have to read.

    """
    if len(tickets) == 1 and tickets[0].to_read is not None:
        return tickets[0]
    now = perf_counter()
    least_s = min((one.used_s for one in tickets if one.used_s is not None), default=0.0)
    for ticket in tickets:
        if ticket.used_s is None:
            ticket.used_s = least_s  # what was shared before it came is not made up for
        if ticket.to_read is None:
            ticket.to_read = ticket.length = unread(ticket)
        if ticket.cancelled or now > ticket.deadline:
            return ticket
    begun = [ticket for ticket in tickets if not ticket.to_read]
    reading = [ticket for ticket in tickets if ticket.to_read]
    if not reading or (begun and min(map(_used_s, begun)) <= min(map(_used_s, reading))):
        return min(begun, key=_used_s)
    return min(reading, key=_rank)


def charge(tickets: Sequence[Ticket], ticket: Ticket, seconds: float, *, read: bool) -> None:
    """Count a turn's time against the request that had it, or against all that are reading.

    Args:
        tickets: the requests that take turns.
        ticket: the one that had the turn.
        seconds: that it took.
        read: whether it read a part of its prompt.

    """
    payers = [one for one in tickets if one.to_read or one is ticket] if read else [ticket]
    # Half of the time goes to reading, however many texts have begun.
    parts = max(len(payers), len(tickets) - len(payers)) if read else 1
    for one in payers:
        one.used_s = _used_s(one) + seconds / parts


def age(tickets: Sequence[Ticket], read: int) -> None:
    """Note that this many tokens of another prompt were read while these waited to read theirs."""
    for ticket in tickets:
        if ticket.to_read:
            ticket.overtaken += read


def _used_s(ticket: Ticket) -> float:
    return ticket.used_s or 0.0


def _rank(ticket: Ticket) -> tuple[int, int]:
    # Of equals, that of which less was read.
    return ticket.length - ticket.overtaken, -(ticket.to_read or 0)
