"""The order of turns: which prompt is read next, and which texts have a round meanwhile.

One chunk of one prompt is read between two rounds of every text that has begun, however many
prompts wait. The prompt with the fewest tokens left comes first, so that a short one does not wait
behind a long one (shortest remaining processing time). A prompt ages by the tokens that are read
while it waits: at most about as many tokens as it has itself are read ahead of it, then none of a
request that comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedec.serve.ticket import Ticket


def due(tickets: Sequence[Ticket], unread: Callable[[Ticket], int]) -> list[Ticket]:
    """Return the requests that have a turn now: one that reads its prompt, and all that have begun.

    Args:
        tickets: the requests that take turns, in the order in which they came.
        unread: returns how many tokens of its prompt a new text would have to read.

    """
    for ticket in tickets:
        if ticket.to_read is None:
            ticket.to_read = unread(ticket)
    begun = [ticket for ticket in tickets if not ticket.to_read or ticket.cancelled]
    reading = [ticket for ticket in tickets if ticket not in begun]
    return [*begun, *([min(reading, key=_left)] if reading else [])]


def age(tickets: Sequence[Ticket], read: int) -> None:
    """Note that this many tokens of another prompt were read while these waited to read theirs."""
    for ticket in tickets:
        if ticket.to_read:
            ticket.overtaken += read


def _left(ticket: Ticket) -> int:
    return (ticket.to_read or 0) - ticket.overtaken
