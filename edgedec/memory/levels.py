"""Levels of retreat when memory is short, in SpecMemo's order (2506.01206).

They are shorter drafts, smaller trees, no cache of the draft model or the head, neither of them,
the cheapest drafter, and no drafter. Every level keeps the target's session, and none can change
the text, since drafts only affect speed. Quantising the target's keys and values would change the
text, and an ONNX graph has one type for them, so it is chosen when a model is exported or opened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from edgedec._support.amounts import megabytes
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting.base import Drafter, DraftLimits, Evictable
from edgedec.decoding.session import Session, Trimmable
from edgedec.memory.account import Account, ModelCosts, Shape, account, remembered

# Measured: tokenising takes 200 bytes per byte of text; a token is about four bytes.
TOKENISING_BYTES = 800
_SHORTER, _SMALLER, _NOTHING = DraftLimits(8, 4), DraftLimits(2, 2), DraftLimits(0, 0)
_LIMITED = (("shorter drafts", _SHORTER), ("smaller drafts", _SMALLER))
FULL = "everything"
_NO_HEAD = "--memory holds the target's cache but not its head with it: going on without the head"


class Unloadable(Protocol):
    """A draft model or a head whose weights can be unloaded."""

    def unload(self) -> None: ...

    def load(self) -> None:
        """Load the weights unless they are loaded; RuntimeUnavailable if they cannot be."""
        ...


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Level:
    """Resources that a round may use.

    Attributes:
        name: in words, for events.
        drafters: names of the drafters whose tables are kept.
        sources: the drafters that may draft; None is all.
        limits: of a draft; None is the policy's own.
        model: whether the draft model, or the head, keeps a cache.
        weights: whether it keeps its weights.
        release: frees what the level does not use.
        restore: loads the draft model's weights if they are gone; raises RuntimeUnavailable.
        note: said once when decoding retreats to it; empty if it is not worth a line.

    """

    name: str
    drafters: tuple[str, ...]
    sources: frozenset[str] | None = None
    limits: DraftLimits | None = None
    model: bool = True
    weights: bool = True
    release: Callable[[], None] = _nothing
    restore: Callable[[], None] = _nothing
    note: str = ""


def levels(
    drafters: Sequence[Drafter],
    targets: Callable[[], Sequence[Session]],
    vocab_size: int,
    *,
    most: int,
    draft: Unloadable | None = None,
) -> list[Level]:
    """Return the levels of a drafter, from the most memory to the least.

    Args:
        drafters: one, or one per parallel request; tables that they cannot release stay counted.
        targets: returns the sessions that score their drafts.
        most: most drafted tokens of a round without a limit.
        draft: the draft model or the head; None if there is none, or it stays loaded.

    """
    drafter, info = drafters[0], drafting.info(drafters[0].name)
    full = Level(FULL, (drafter.name,), restore=_nothing if draft is None else draft.load)
    parts = map(drafting.info, drafting.with_parts([drafter.name]))
    again = any(one.needs_head or one.shared_bytes for one in parts)
    every = partial(_release, targets, drafters, drafting.names(), None)  # they may keep again
    full, trim = (replace(full, release=every), every) if again else (full, partial(_trim, targets))
    if drafter.name == PLAIN:
        return [full]
    less = [replace(full, release=trim, name=n, limits=at) for n, at in _LIMITED if at.nodes < most]
    found = [full, *less]
    small = replace(found[-1], limits=_SMALLER)
    if not isinstance(drafter, Evictable):
        return [*found, replace(small, name="plain decoding", limits=_NOTHING)]

    def alone(name: str, *keep: str, weights: bool = draft is None) -> Level:
        return replace(
            small if keep else replace(small, limits=_NOTHING), name=name, drafters=keep,
            sources=frozenset(keep), model=False, weights=weights,
            restore=full.restore if weights else _nothing,
            release=partial(_release, targets, drafters, keep, None if weights else draft),
            note=_NO_HEAD if info.needs_head else "",
        )  # fmt: skip

    free = sorted(_without_model(drafter.name), key=lambda one: remembered([one], vocab_size, 1))
    what = "head" if info.needs_head else "draft model"
    if info.needs_weights and (free or draft is not None):
        found.append(alone(f"no {what}", *free, weights=True))
    if info.needs_weights and free and draft is not None:
        found.append(alone(f"{what} unloaded", *free))
    if len(free) > 1:
        found.append(alone(f"{free[0]} alone", free[0]))
    return [*found, alone("plain decoding")]


def _trim(targets: Callable[[], Sequence[Session]]) -> None:
    for session in targets():
        if isinstance(session, Trimmable):
            session.trim()


def _release(
    targets: Callable[[], Sequence[Session]],
    drafters: Sequence[Drafter],
    keep: Sequence[str],
    unloaded: Unloadable | None,
) -> None:
    _trim(targets)
    for drafter in drafters:
        if isinstance(drafter, Evictable):
            drafter.evict(keep)
    if unloaded is not None:
        unloaded.unload()


def _without_model(drafter: str) -> list[str]:
    infos = {name: drafting.info(name) for name in drafting.with_parts([drafter])}
    return [
        name
        for name, info in infos.items()
        if name != PLAIN and not info.needs_weights and not info.parts
    ]


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured memory of the open models.

    Attributes:
        target, draft: the models; see ``ModelCosts``. The sessions of all parallel requests are in
            ``held`` of the draft, which opens them at once.
        process: the interpreter with the runtimes.
        tokenizer: as loaded.
        drafted: most drafted tokens of a round.
        parallel: number of parallel requests, each with tables of its own.
        caches: most sessions of the target.

    """

    target: ModelCosts
    draft: ModelCosts | None
    process: int
    tokenizer: int
    drafted: int
    parallel: int = 1
    caches: int = 1

    def of(
        self,
        level: Level,
        context: int,
        *,
        sampled: bool,
        prompt: int | None = None,
        beside: Sequence[int] = (),
    ) -> Account:
        """Return the account of a level for a context of this many tokens, beside other texts'."""
        drafted = self.drafted if level.limits is None else min(self.drafted, level.limits.nodes)
        draft = self.draft if level.weights else None
        if draft is not None and not level.model:
            draft = draft.without_cache
        shape = Shape(
            context, drafted, level.drafters, sampled, prompt, tuple(beside), self.parallel
        )
        process = self.process + self.tokenising(context)
        return account(self.target, draft, shape, process=process, tokenizer=self.tokenizer)

    def tokenising(self, context: int) -> int:
        """Return the bytes for tokenising a prompt of this many tokens while others are decoded."""
        return TOKENISING_BYTES * context if self.parallel > 1 else 0

    def without_draft(self, needed: int, granted: int) -> str:
        """Return advice to leave the draft model out if that is enough; otherwise empty."""
        held = 0 if self.draft is None else self.draft.held
        if not held or needed - held > granted:
            return ""
        other = drafting.default(with_model=False)
        return f", or --drafter {other}, which leaves out a draft model of {megabytes(held)} MB"

    def fitting(self, level: Level, bytes_: int, most: int, texts: int = 1) -> int:
        """Return the longest context, up to ``most``, of which this many fit; 0 if none does."""

        def exceeds(context: int) -> bool:
            beside = (context,) * (texts - 1)
            return self.of(level, context, sampled=True, beside=beside).total > bytes_

        return bisect_left(range(1, most + 1), True, key=exceeds)
