"""Opens the sessions of a pair, with a context that fits in the memory limit."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from edgedec._support.amounts import megabytes
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.engine import Engine
from edgedec.decoding.session import (
    Capabilities,
    HeadModel,
    Model,
    ModelInfo,
    Rehearsing,
    Reserving,
    Session,
    Want,
)
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import TokenTree
from edgedec.errors import MemoryBudgetError
from edgedec.hardware.resident import release_free, resident_bytes, unread_bytes
from edgedec.loading.options import OpenOptions
from edgedec.loading.unloading import UnloadableModel
from edgedec.memory.account import AUTO_LENGTH, FLOAT_BYTES, ModelCosts, remembered
from edgedec.memory.budget import CachePlan, plan_caches
from edgedec.memory.grant import granting, spare, with_spare
from edgedec.memory.guard import MemoryGuard
from edgedec.memory.kept import KeptSessions
from edgedec.memory.levels import FULL, Costs, Level, levels
from edgedec.records.plan import OVERLAPPED, Plan

# Below the first, drafting is given up to keep the context; a context below the second is refused.
_SHORT, _LEAST = 512, 16


class Meter:
    """Measures how much memory the process gained in each loading step, by name.

    Args:
        counting: False measures nothing, since reading all mappings takes milliseconds.

    Attributes:
        process: resident bytes before the first step.

    """

    def __init__(self, *, counting: bool) -> None:
        self._counting = counting
        self.process = self._last = resident_bytes() if counting else 0
        self._mapped = unread_bytes() if counting else 0
        self._taken: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()

    def mark(self, name: str) -> None:
        """Add the memory gained since the last mark to a name."""
        if not self._counting:
            return
        now = resident_bytes()
        self._taken[name] += now - self._last
        self._last = now
        unread = unread_bytes()
        self._unread[name] += unread - self._mapped
        self._mapped = unread

    def skip(self) -> int:
        """Return the memory gained since the last mark, which counts for no name."""
        if not self._counting:
            return 0
        before, self._last = self._last, resident_bytes()
        return self._last - before

    def taken(self, name: str) -> int:
        """Return the bytes counted for a name."""
        return max(0, self._taken[name])

    def unread(self, name: str) -> int:
        """Return the bytes of files mapped for a name that are not in memory yet."""
        return max(0, self._unread[name])


@dataclass(frozen=True, slots=True)
class Sessions:
    """Open sessions of a pair.

    Attributes:
        target, draft: empty; ``draft`` is of the draft model or the head, None without one.
        caches: their capacity.
        costs: memory of the models; None if memory is not limited.
        meter: measures the memory of the engine; None if memory is not limited.

    """

    target: Session
    draft: Session | None
    caches: CachePlan
    costs: Costs | None = None
    meter: Meter | None = None

    def guard(
        self,
        options: OpenOptions,
        engines: Sequence[Engine],
        draft: Model | None = None,
        note: str = "",
    ) -> MemoryGuard | None:
        """Return a guard over engines of these sessions; None if memory is not limited.

        Args:
            options: the options that the sessions were opened with.
            engines: all engines that use them.
            draft: the draft model or the head; None if there is none.
            note: what the user should know of memory.

        """
        engine = engines[0]
        if self.costs is None or self.meter is None or options.memory is None:
            return None
        vocab_size, most = self.costs.target.vocab_size, self.costs.drafted
        self.meter.mark("engine")
        # The drafter's tables are accounted for separately; earlier texts have none yet.
        drafters = [engine.drafter.name]
        tables = remembered(drafters, vocab_size, 0) - remembered(drafters, 0, 0)
        engine_bytes = self.meter.taken("engine") - tables
        costs = replace(self.costs, process=self.costs.process + max(0, engine_bytes))
        steps = levels(
            [one.drafter for one in engines],
            lambda: engine.pool.sessions,
            vocab_size,
            most=most,
            draft=draft if isinstance(draft, UnloadableModel) else None,
        )
        # An overlapped draft model may be computing.
        alone = options.schedule != OVERLAPPED and options.parallel == 1
        guard = MemoryGuard(
            granting(options.memory, later=True),
            costs,
            steps,
            lambda: engine.target,
            KeptSessions(engine.pool, self.costs.target),
            self.draft if alone else None,
        )
        guard.join()
        guard.add_note(note)
        return guard


def open_sessions(
    target: Model,
    draft: Model | None,
    plan: Plan,
    options: OpenOptions,
    meter: Meter,
    stack: ExitStack,
) -> Sessions:
    """Open sessions with the largest context that the options and the memory limit allow.

    Args:
        target, draft: the models; the second may be the target's head.
        plan: says how much is drafted.
        options: limits of the context and of memory.
        meter: has measured the steps ``tokenizer``, ``target`` and ``draft``.
        stack: closes the sessions.

    Raises:
        MemoryBudgetError: the requested context does not fit in a limit.

    """
    found = _opened(target, draft, options, options.context_limit, stack)
    if options.memory is None:
        return found
    _settle()
    drafted = 0 if plan.plain else plan.draft_length
    drafted = AUTO_LENGTH if drafted is None else drafted
    granted = granting(options.memory)()
    costs = _pair_costs(meter, (target, draft), found, options, drafted, granted)
    most = found.caches.capacity
    capacity = fitted(costs, plan.drafter, granted, most, options.max_context)
    if capacity < most or options.caches > 1:
        for session in (found.target, found.draft):
            if session is not None:
                session.close()
        found = _opened(target, draft, options, capacity, stack)
        meter.skip()  # what sessions take is in the costs
    return replace(found, costs=costs, meter=meter)


def _pair_costs(
    meter: Meter,
    models: tuple[Model, Model | None],
    opened: Sessions,
    options: OpenOptions,
    drafted: int,
    granted: int,
) -> Costs:
    """Return the memory of target and draft, of which the sessions hold a part already."""
    (target, draft), rows = models, drafted + 1
    of_target = _costs(
        meter, "target", target, opened.target, rows, granted, several=options.caches > 1
    )
    of_draft = None
    if draft is not None and opened.draft is not None:
        of_draft = _costs(
            meter, "draft", draft, opened.draft, rows, granted, several=options.parallel > 1
        )
        others = (options.parallel - 1) * of_draft.own
        of_draft = replace(of_draft, held=of_draft.held + others + _waiting(draft, options))
    tokenizer = meter.taken("tokenizer")
    process, parallel, caches = meter.process, options.parallel, options.caches
    return Costs(of_target, of_draft, process, tokenizer, drafted, parallel, caches)


def _waiting(draft: Model, options: OpenOptions) -> int:
    """Return the bytes of what waits for a head; 0 for a draft model."""
    if not isinstance(draft, HeadModel):
        return 0
    from edgedec.loading.heads import waiting_bytes

    return waiting_bytes(draft, options)


def _opened(
    target: Model, draft: Model | None, options: OpenOptions, limit: int | None, stack: ExitStack
) -> Sessions:
    info = replace(
        _at_most(target.info, limit),
        # The target has a cache per conversation, the draft one per parallel request.
        kv_bytes_per_token=target.info.kv_bytes_per_token * options.caches,
    )
    of_draft = seen = None
    if draft is not None:
        kv_bytes = draft.info.kv_bytes_per_token * options.parallel
        # A head holds the whole text, as its target does.
        seen = None if isinstance(draft, HeadModel) else options.draft_context
        of_draft = _at_most(replace(draft.info, kv_bytes_per_token=kv_bytes), seen)
    caches = plan_caches(
        info,
        of_draft,
        max_context=options.max_context,
        kv_memory=options.kv_memory,
    )
    session = _open(target, caches.capacity, stack)
    if draft is None:
        return Sessions(session, None, caches)
    return Sessions(session, _open(draft, seen or caches.capacity, stack), caches)


def _at_most(info: ModelInfo, context: int | None) -> ModelInfo:
    return replace(info, max_context=min(info.max_context, context or info.max_context))


def _open(model: Model, capacity: int, stack: ExitStack) -> Session:
    session = model.open(min(capacity, model.info.max_context))
    stack.callback(session.close)
    return session


def _costs(
    meter: Meter,
    role: str,
    model: Model,
    session: Session,
    rows: int,
    granted: int,
    *,
    several: bool,
) -> ModelCosts:
    """Measure a model after a pass of each kind that decoding runs.

    Where there are to be ``several`` sessions, this one is closed, to see what it had of its own.
    """
    affordable = max(0, granted - resident_bytes()) // max(1, model.info.kv_bytes_per_token)
    info, rows = model.info, _rows(rows, model, session)
    prefilled = min(PREFILL_CHUNK, session.capacity - rows)
    filled = _rehearsed(model, session, rows, affordable)
    meter.mark(role)
    cache = filled * info.kv_bytes_per_token
    held, unread = meter.taken(role) - cache, meter.unread(role)
    reserving = isinstance(session, Reserving)
    # A small state's memory is not given back at once.
    own = max(_own(meter, session, cache), info.state_bytes) if several else 0
    return ModelCosts(
        max(0, held),
        info.kv_bytes_per_token,
        session.capacity,
        info.vocab_size,
        info.scratch_bytes_per_token,
        rows,
        unread,
        max(FLOAT_BYTES * rows * info.vocab_size, info.scratch_bytes_per_token * (prefilled + rows))
        if info.scratch_bytes_per_token
        else 0,
        own=own,
        least=filled if reserving else 0,
        scratch_each=reserving,
        lookup_bytes=info.lookup_bytes,
    )


def _rows(rows: int, model: Model, session: Session) -> int:
    """Return the rows of the widest pass that is measured."""
    rows, widths = min(rows, session.capacity // 2), model.capabilities.row_widths
    return rows if widths is None else min(rows, widths[-1])


def _rehearsed(model: Model, session: Session, rows: int, affordable: int) -> int:
    """Run a pass of each kind; return the tokens for which the session now has memory."""
    prefilled = min(PREFILL_CHUNK, session.capacity - rows)
    if isinstance(session, Rehearsing):
        session.rehearse(max(prefilled + rows, min(session.capacity, affordable)), rows)
        return 0
    session.prefill([0] * prefilled)
    scored = session.forward(_widest(rows, model.capabilities), want=Want.LOGITS)
    scored.first()  # some runtimes rank tokens on first use only
    session.rollback(0)
    return session.allocated if isinstance(session, Reserving) else prefilled + rows


def _settle() -> None:
    """Free what loading and measuring left behind, or it would seem to be given back later."""
    gc.collect()
    release_free()


def _own(meter: Meter, session: Session, cache: int) -> int:
    """Close a session; return what that gives back besides these bytes of its cache."""
    session.close()
    _settle()
    return max(0, -meter.skip() - cache)


def _widest(rows: int, capabilities: Capabilities) -> TokenTree:
    """Return a tree of this many nodes, which branches where a session verifies that."""
    tree = TokenTree(0)
    while len(tree) < rows:
        branches = capabilities.tree and len(tree) == rows // 2
        tree.add(1, 0 if branches else len(tree) - 1)
    return tree


def fitted(costs: Costs, drafter: str, granted: int, most: int, asked: int | None) -> int:
    """Return the largest context that fits in the granted memory, at most ``most`` tokens.

    Args:
        costs: memory of the open models.
        granted: bytes that the process may hold.
        most: upper bound, in tokens. Texts of that many may not all fit at once.
        asked: the context that the user requested, which is kept even if drafts must be shorter.
            With a head, the largest one is kept: long texts do without the head.

    Raises:
        MemoryBudgetError: the requested context, or any, does not fit; names bytes and options.

    """
    room = granted - spare(granted)
    headed = drafting.info(drafter).needs_head
    # As many texts at once as possible; the others wait.
    for texts in range(costs.caches, 0, -1):
        full = costs.fitting(Level(FULL, (drafter,)), room, most, texts)
        if full == most or (asked is None and full >= _SHORT and not headed):
            return full
    bare = Level("plain decoding", (PLAIN,), limits=None, model=False, weights=not headed)
    plain = costs.fitting(bare, room, most)
    if plain == most or (asked is None and plain >= min(_LEAST, most)):
        return plain
    least = asked or min(_LEAST, most)
    needed = with_spare(costs.of(bare, least, sampled=True).total)
    advice = f"give --memory {-(-needed // 10**6)}MB"
    if plain >= _LEAST:
        advice += f", or --max-context {plain}"
    else:
        advice += ", or take a smaller model"
    if not headed:  # a head is dropped anyway
        advice += costs.without_draft(needed, granted)
    raise MemoryBudgetError(
        f"--memory: plain decoding with a context of {least} tokens needs {megabytes(needed)} MB,"
        f" and {megabytes(granted)} MB are granted: {advice}"
    )
