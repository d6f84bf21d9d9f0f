"""Enforces a memory limit while decoding.

Before a request, the memory model says which level of ``levels`` fits in the grant; every few
rounds the process's resident memory is compared with the grant. If it exceeds the grant, the guard
retreats level by level, and returns when there is room; a request is refused only if plain decoding
does not fit.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence

from edgedec._support.amounts import megabytes
from edgedec.decoding.drafting.base import DraftLimits, DraftStep, GoOn
from edgedec.decoding.metrics import MemoryEvent, MemoryRecord, Metrics
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.policy.base import Within
from edgedec.decoding.session import Reserving, Session
from edgedec.decoding.session_pool import PooledSession
from edgedec.errors import MemoryBudgetError, RuntimeUnavailable
from edgedec.hardware.resident import release_free, resident_bytes
from edgedec.memory.account import Account
from edgedec.memory.kept import KeptSessions
from edgedec.memory.levels import Costs, Level

_log = logging.getLogger("edgedec")
# Number of rounds between two checks of the process's memory.
EVERY = 16
# Measured memory may exceed the grant by this share before plain decoding is refused as well.
_TOLERANCE = 0.03
# Consecutive checks that must find enough room before the guard returns to the level above; each
# retreat doubles it.
_PATIENCE = 2
# Those of the open models of this process, whose memory is one.
_TOGETHER: weakref.WeakSet[MemoryGuard] = weakref.WeakSet()
_CHANGING = threading.Lock()


class MemoryGuard:
    """Decides how much memory the rounds of a request may use.

    Args:
        grant: returns the bytes that the process may hold; called before each request.
        levels: from the most memory to the least.
        target: returns the session that scores drafts.
        kept: the target's sessions; None counts what texts may take, whoever holds it.
        draft: the draft's session, if every request uses it, so that its cache may be allocated
            between two requests.
        read: returns the bytes that the process holds.

    Attributes:
        notes: what the user should know, one line each; also logged.

    """

    def __init__(
        self,
        grant: Callable[[], int],
        costs: Costs,
        levels: Sequence[Level],
        target: Callable[[], Session],
        kept: KeptSessions | None = None,
        draft: Session | None = None,
        read: Callable[[], int] = resident_bytes,
    ) -> None:
        self._grant, self._costs, self._levels = grant, costs, levels
        self._target, self._kept, self._draft, self._read = target, kept, draft, read
        self.notes: list[str] = []
        self._granted = grant()
        # Most bytes that the process was expected to hold so far besides the target's sessions, and
        # what the text that begins has yet to take; decoding did not allocate the rest.
        self._expected = read() - (0 if kept is None else kept.bytes)
        self._coming = 0
        self._context, self._needed, self._sampled = 0, 0, False
        self._prompt: int | None = None
        self._beside: tuple[int, ...] = ()
        self._at = self._first = 0
        self._left, self._calm, self._patience = EVERY, 0, _PATIENCE
        self._metrics = Metrics()
        self._record = MemoryRecord(self._granted, {})

    @property
    def level(self) -> Level:
        return self._levels[self._at]

    def join(self) -> None:
        """Leave memory to the texts of other models in this process, and have them do so."""
        with _CHANGING:
            _TOGETHER.add(self)

    def leave(self) -> None:
        """End what ``join`` began."""
        with _CHANGING:
            _TOGETHER.discard(self)

    def add_note(self, note: str) -> None:
        """Add a line to the notes, once; an empty one is none."""
        if note and note not in self.notes:
            self.notes.append(note)
            _log.warning(note)

    def free_bytes(self, *, running: bool) -> int:
        """Return the granted bytes that neither the process nor its running texts need."""
        needed = self._needed - self._costs.tokenising(self._context) if running else 0
        return self._grant() - max(self._read(), needed)

    def begin(
        self,
        context: int,
        metrics: Metrics,
        *,
        sampled: bool,
        prompt: int | None = None,
        beside: Sequence[int] = (),
    ) -> None:
        """Prepare for a request; where memory is short, idle sessions are given up for it.

        Args:
            context: most tokens of prompt and output together.
            sampled: whether tokens are drawn with noise, in any text that runs.
            prompt: tokens of the longest prompt that runs; None is up to all of the context.
            beside: contexts of the other texts that run.

        Raises:
            MemoryBudgetError: it does not fit at any level; names bytes and options.

        """
        self._granted = self._grant()
        self._context, self._sampled, self._metrics = context, sampled, metrics
        self._prompt, self._beside, self._coming = prompt, tuple(beside), 0
        costs, chosen = self._chosen()
        if not self._restore(chosen):
            costs, chosen = self._chosen()
        self._needed = costs[chosen].total
        self._record = MemoryRecord(self._granted, costs[chosen].parts())
        if metrics.memory is not None:  # the request continues at another place
            self._record.events = metrics.memory.events
        metrics.memory = self._record
        self._first, self._calm, self._patience = 0, 0, _PATIENCE
        if chosen != self._at:
            self._go_to(chosen, "the request may need it", costs[min(self._at, chosen)].total)
        self._first = chosen
        sessions = 0 if self._kept is None else self._of_sessions(chosen)
        self._expected = max(self._expected, self._needed - sessions)
        if self._kept is not None:
            self._kept.admit(context, self._granted - self._others() - self._needed)
            self._coming = self._kept.planned(context)
        self._allocate_draft()

    def take(self, session: PooledSession, tokens: int) -> None:
        """Prepare the session of the text that begins, before anything is computed in it.

        Args:
            session: the target's.
            tokens: most tokens of this text's prompt and output together.

        Raises:
            PassFailed: the runtime cannot allocate its cache.

        """
        assert self._kept is not None
        free = self._granted - self._read()
        self._kept.take(session, tokens + self._costs.drafted + 1, free)
        self._coming = 0
        release_free()

    def _chosen(self) -> tuple[list[Account], int]:
        """Return each level's account, and the index of the first level that fits."""
        costs = [
            self._costs.of(
                level, self._context, sampled=self._sampled, prompt=self._prompt,
                beside=self._beside,
            )
            for level in self._levels
        ]  # fmt: skip
        chosen = self._first_that_fits(costs)
        if chosen is None or chosen > self._at:
            release_free()  # tokenising a long prompt leaves megabytes in the heap
            chosen = self._first_that_fits(costs)
        while (chosen is None or chosen > self._at) and self._drop_idle():
            chosen = self._first_that_fits(costs)
        if chosen is None:
            others = self._others()
            raise self._refusal(costs[-1].total + others, others)
        return costs, chosen

    def _restore(self, at: int) -> bool:
        """Load the draft model if a level needs it; if that fails, drop the levels that do."""
        try:
            self._levels[at].restore()
        except RuntimeUnavailable as error:
            there = self.level
            self._levels = [level for level in self._levels if not level.weights]
            self._at = self._first = self._levels.index(there)
            self.add_note(f"{error}: going on without it")
            return False
        return True

    def _first_that_fits(self, costs: Sequence[Account]) -> int | None:
        room = self._granted - self._others()
        room -= 0 if self._kept is None else self._kept.beside(self._context)
        return next((n for n, one in enumerate(costs) if one.total <= room), None)

    def _drop_idle(self) -> bool:
        """Give up an idle session; return whether there was one."""
        if self._kept is None or not self._kept.drop():
            return False
        release_free()
        return True

    def _of_sessions(self, at: int) -> int:
        """Return what the account of a level says of the target's sessions."""
        costs, level = self._costs.target, self._levels[at]
        drafted = self._costs.drafted
        if level.limits is not None:
            drafted = min(drafted, level.limits.nodes)
        texts = (self._context, *self._beside)
        return sum(costs.own + costs.cache(one + drafted + 1) for one in texts)

    def _others(self) -> int:
        """Return the bytes beyond the accounted ones that the process holds.

        Those that the texts of other models in it may yet take count as well.
        """
        with _CHANGING:
            others = [one for one in _TOGETHER if one is not self]
        coming = sum(one.coming for one in others)
        return max(0, self._read() - self._accounted()) + coming

    @property
    def coming(self) -> int:
        """Bytes that the texts which run may yet take."""
        return 0 if self._kept is None else self._kept.coming

    def _accounted(self) -> int:
        """Return the accounted bytes, without those of an unloaded draft model."""
        draft = self._costs.draft
        sessions = self._coming + (0 if self._kept is None else self._kept.bytes)
        unloaded = 0 if draft is None or self.level.weights else draft.held
        return self._expected + sessions - unloaded

    def _allocate_draft(self) -> None:
        """Reserve the whole context in the draft's cache, if it is allocated at once."""
        growing, costs = self._draft, self._costs.draft
        tokens = self._context + self._costs.drafted + 1
        if growing is None or costs is None or not self.level.model:
            return
        if not isinstance(growing, Reserving) or growing.allocated >= tokens:
            return
        # While a filled cache grows, memory holds it twice, and its saved state once more.
        more = costs.own + costs.cache(tokens + growing.length)
        if self._read() + more > self._granted:
            return  # its drafter tracks the cached tokens
        growing.reserve(tokens)
        release_free()

    def tick(self) -> None:
        """Count a round; check the memory every ``EVERY`` rounds."""
        self._left -= 1
        if self._left <= 0:
            self._left = EVERY
            self.check()

    def check(self) -> None:
        """Retreat until the process's memory fits in the grant, or return to the level above.

        Raises:
            MemoryBudgetError: plain decoding does not fit either.

        """
        held = self._look()
        if held + self._ahead() <= self._granted:
            self._perhaps_return(held)
            return
        while held + self._ahead() > self._granted and self._drop_idle():
            held = self._look()
        self._calm, self._patience = 0, 2 * self._patience
        while held + self._ahead() > self._granted and self._at + 1 < len(self._levels):
            self._go_to(self._at + 1, "the process exceeds the grant", held)
            held = self._look()
        if held > self._granted * (1 + _TOLERANCE):
            self._free()
            held = self._look()
            if held > self._granted * (1 + _TOLERANCE):
                raise self._refusal(held, max(0, held - self._accounted()))

    def _perhaps_return(self, held: int) -> None:
        if self._at <= self._first:
            return
        more = self._total(self._at - 1) - self._total(self._at)
        self._calm = self._calm + 1 if held + self._ahead() + more <= self._granted else 0
        if self._calm >= self._patience:
            self._calm = 0
            if self._restore(self._at - 1):
                self._go_to(self._at - 1, "there is room again", held)

    def _go_to(self, at: int, reason: str, held: int) -> None:
        before, kind = self.level, "retreat" if at > self._at else "return"
        self._at = at
        self.add_note(self.level.note)
        self._free()
        self._record.events.append(
            MemoryEvent(kind, before.name, self.level.name, reason, held, self._metrics.emitted)
        )

    def _free(self) -> None:
        self.level.release()
        release_free()

    def _look(self) -> int:
        held = self._read()
        self._record.most = max(self._record.most, held)
        return held

    def _ahead(self) -> int:
        """Return the bytes of cache that rounds may write until the next check."""
        if isinstance(self._target(), Reserving):
            return 0
        limits = self.level.limits
        drafted = self._costs.drafted if limits is None else limits.nodes
        rows = min(
            EVERY * (drafted + 1), max(0, self._context - self._target().length) + drafted + 1
        )
        return rows * self._costs.target.kv_bytes_per_token

    def _total(self, at: int) -> int:
        level, length = self._levels[at], self._target().length
        return self._costs.of(level, length, sampled=self._sampled, beside=self._beside).total

    def _refusal(self, needed: int, others: int) -> MemoryBudgetError:
        room = self._granted - others
        fits = self._costs.fitting(self._levels[-1], room, self._context)
        advice = f"give --memory {-(-needed // 10**6)}MB"
        if fits > 1:
            advice += (
                f", or take a text of {fits} tokens, its prompt included (--max-new-tokens, a"
                " shorter prompt)"
            )
        if self._levels[-1].weights:  # otherwise they were released before
            advice += self._costs.without_draft(needed, self._granted)
        return MemoryBudgetError(
            f"a text of {self._context} tokens, decoded plainly, needs {megabytes(needed)} MB, and"
            f" {megabytes(self._granted)} MB are granted: {advice}"
        )


class Restrained(Within):
    """Limits another policy's decisions to the guard's level; the guard is asked once a round."""

    def __init__(self, policy: DraftPolicy, guard: MemoryGuard) -> None:
        super().__init__(policy)
        self._guard = guard
        self._limits = policy.limits
        self.observe = policy.observe  # type: ignore[method-assign]  # as quick as without a guard

    def limits(self) -> DraftLimits:
        guard = self._guard
        guard.tick()
        wanted, allowed = self._limits(), guard.level.limits
        if allowed is None:
            return wanted
        return DraftLimits(min(wanted.nodes, allowed.nodes), min(wanted.depth, allowed.depth))

    @property
    def go_on(self) -> GoOn:
        """Return the policy's own, or one that lets only the allowed drafters draft."""
        return self._policy.go_on if self._guard.level.sources is None else self._some

    def _some(self, step: DraftStep) -> bool:
        return self._go_on_with(self._guard.level.sources or (), step)
