"""Steps of retreat when memory is short, in SpecMemo's order (2506.01206).

Shorter drafts, smaller trees, no cache of the draft model, the cheapest drafter, none. Each step
keeps the target's session, and none can change the text: drafts decide its speed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import Drafter, DraftLimits, Evictable
from edgedec.decoding.session import Session
from edgedec.decoding.session_abilities import Trimmable
from edgedec.memory.account import remembered

_SHORTER, _SMALLER, _NOTHING = DraftLimits(8, 4), DraftLimits(2, 2), DraftLimits(0, 0)
FULL = "everything"


@dataclass(frozen=True, slots=True)
class Level:
    """Resources that a round may use.

    Attributes:
        name: in words, for events.
        drafters: names of the drafters whose tables are kept.
        sources: the drafters that may draft; None is all.
        limits: of a draft; None is the policy's own.
        model: whether the draft model keeps a cache.
        give_back: frees what the level does not use.

    """

    name: str
    drafters: tuple[str, ...]
    sources: frozenset[str] | None = None
    limits: DraftLimits | None = None
    model: bool = True
    give_back: Callable[[], None] = lambda: None


def levels(
    drafters: Sequence[Drafter],
    targets: Callable[[], Sequence[Session]],
    vocab_size: int,
    *,
    most: int,
) -> list[Level]:
    """Return the levels of a drafter, from the most memory to the least.

    Args:
        drafters: several of one name if texts take turns; what they cannot give back stays counted.
        targets: returns the sessions that score their drafts.
        vocab_size: of the target.
        most: drafted tokens of a round without a limit.

    """
    drafter = drafters[0]
    full = Level(FULL, (drafter.name,))
    if drafter.name == PLAIN:
        return [full]
    found = [full]
    trim = partial(_trim, targets)
    for name, limits in (("shorter drafts", _SHORTER), ("smaller drafts", _SMALLER)):
        if limits.nodes < most:
            found.append(replace(full, name=name, limits=limits, give_back=trim))
    small = replace(found[-1], limits=_SMALLER)
    if not isinstance(drafter, Evictable):
        return [*found, replace(small, name="plain decoding", limits=_NOTHING)]

    def alone(name: str, *keep: str) -> Level:
        return replace(
            small, name=name, drafters=keep, sources=frozenset(keep), model=False,
            give_back=partial(_give_back, targets, drafters, keep),
        )  # fmt: skip

    free = sorted(_without_model(drafter.name), key=lambda one: remembered(one, vocab_size, 1))
    if free and drafting.info(drafter.name).needs_model:
        found.append(alone("no draft model", *free))
    if len(free) > 1:
        found.append(alone(f"{free[0]} alone", free[0]))
    return [*found, replace(alone("plain decoding"), limits=_NOTHING)]


def _trim(targets: Callable[[], Sequence[Session]]) -> None:
    for session in targets():
        if isinstance(session, Trimmable):
            session.trim()


def _give_back(
    targets: Callable[[], Sequence[Session]], drafters: Sequence[Drafter], keep: Sequence[str]
) -> None:
    _trim(targets)
    for drafter in drafters:
        if isinstance(drafter, Evictable):
            drafter.evict(keep)


def _without_model(drafter: str) -> list[str]:
    """Return the parts of a drafter that need no model, itself if it is one."""
    info = drafting.info(drafter)
    if info.parts:
        return list(dict.fromkeys(name for part in info.parts for name in _without_model(part)))
    return [] if info.needs_model or drafter == PLAIN else [drafter]
