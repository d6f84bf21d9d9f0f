"""Measures a round's overhead outside passes: the loop, the sampler and the drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, cast

from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.drafting.base import Drafter, DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.none import NoDrafter
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed, RoundRecord
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Session
from edgedec.decoding.stopping import NoText, StopRule
from edgedec.decoding.translation import Translation

_ROUNDS = 24
_DRAFTED = 4


class TimedSession:
    """Session wrapper that sums the seconds of its passes."""

    def __init__(self, session: Session, clock: Callable[[], float]) -> None:
        self._session, self._clock = session, clock
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, *args: Any, **more: Any) -> Any:
        return self._timed(self._session.forward, *args, **more)

    def prefill(self, *args: Any, **more: Any) -> Any:
        return self._timed(self._session.prefill, *args, **more)

    def _timed(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        begin = self._clock()
        try:
            return call(*args, **more)
        finally:
            self.seconds += self._clock() - begin


class _OutsidePasses(Metrics):
    """Metrics with the seconds of each round outside passes."""

    __slots__ = ("_last", "_timers", "rounds")

    def __init__(self, timers: Sequence[TimedSession]) -> None:
        super().__init__()
        self._timers = timers
        self._last = 0.0
        self.rounds: list[float] = []

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        super().observe(record, total_s, lone_row_s)
        passes = sum(timer.seconds for timer in self._timers)
        self.rounds.append(total_s - (passes - self._last))
        self._last = passes


def overheads(
    target: Session,
    draft: Session | None,
    translation: Translation | None,
    prompt: Sequence[int],
    vocab_size: int,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, float]:
    """Return seconds outside passes: of a plain round, and more per token that a draft model
    drafts.

    Args:
        target, draft: sessions to decode a few rounds with; emptied first.
        translation: between their vocabularies, if they differ.
        prompt: to continue.
        vocab_size: columns of the target's rows.
        clock: returns seconds.

    """
    plain = _overhead(target, None, None, prompt, vocab_size, clock)
    if draft is None:
        return plain, 0.0
    drafted = _overhead(target, draft, translation, prompt, vocab_size, clock)
    return plain, max(0.0, (drafted - plain) / _DRAFTED)


def _overhead(
    target: Session,
    draft: Session | None,
    translation: Translation | None,
    prompt: Sequence[int],
    vocab_size: int,
    clock: Callable[[], float],
) -> float:
    timers = [TimedSession(one, clock) for one in (target, draft) if one is not None]
    sessions = [cast(Session, timer) for timer in timers]
    drafter: Drafter = NoDrafter()
    if draft is not None:
        drafter = ModelDrafter(DrafterParts(vocab_size, sessions[1], translation=translation))
    for timer in timers:
        timer.rollback(0)
    policy = Fixed(0 if draft is None else _DRAFTED)
    engine = Engine(sessions[0], drafter, policy, GumbelCoupling(), clock)
    sampler = Sampler(SamplingParams(), vocab_size, prompt)
    limit = min(engine.room(prompt), _ROUNDS * (1 if draft is None else 1 + _DRAFTED))
    stop = StopRule(max_new_tokens=limit, stream=NoText())
    metrics = _OutsidePasses(timers)
    rounds = engine.run(Request(prompt, sampler, stop), metrics)
    for _ in rounds:
        if len(metrics.rounds) >= _ROUNDS:
            break
    rounds.close()  # type: ignore[attr-defined]
    for timer in timers:
        timer.rollback(0)
    # The first round runs with cold processor caches and contains the prompt's reading.
    return max(0.0, median(metrics.rounds[1:] or metrics.rounds))
