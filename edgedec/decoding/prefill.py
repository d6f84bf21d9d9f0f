"""Prefills a prompt: keeps a shared prefix, and computes the rest at once or by turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedec.decoding.session import Session
from edgedec.errors import CannotRollback, Interrupted

# Tokens of a prompt that one turn prefills, equal to the chunk that runtimes compute in one pass.
TURN = 128
# Up to this many tokens that a draft model lacks are computed in its next pass; more are prefilled,
# which needs neither logits nor an ancestor mask.
RIDE_ALONG = 8


def shared_length(held: Sequence[int], text: Sequence[int]) -> int:
    """Return the length of the common prefix of two texts."""
    for index, (ours, theirs) in enumerate(zip(held, text, strict=False)):
        if ours != theirs:
            return index
    return min(len(held), len(text))


def go_back(session: Session, length: int) -> int:
    """Roll back to at most ``length`` tokens; return how many are left.

    A session that cannot stop there goes back further; the missing tokens are computed again.
    """
    try:
        session.rollback(length)
    except CannotRollback as error:
        length = error.nearest if error.nearest <= length else 0
        session.rollback(length)
    return length


def in_turns(tokens: Sequence[int], *, by_turns: bool) -> list[Sequence[int]]:
    """Split the rest of a prompt into parts of ``TURN`` tokens, or return it as one part."""
    size = TURN if by_turns else max(1, len(tokens))
    return [tokens[start : start + size] for start in range(0, max(1, len(tokens)), size)]


def prefill(session: Session, tokens: Sequence[int], ended: Callable[[], bool]) -> bool:
    """Prefill tokens until ``ended()`` is true; return whether all were prefilled.

    Raises:
        Interrupted: the session was interrupted although the request has not ended.

    """
    if ended():
        return False

    def between_chunks(done: int, total: int) -> None:
        if ended():
            raise Interrupted("ended while prefilling the prompt")

    try:
        session.prefill(tokens, between_chunks)
    except Interrupted:
        if not ended():
            raise
        return False
    return True
