"""Measures a round's overhead outside passes: the loop, the sampler and the drafter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, cast

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
from edgedec.decoding.tree import TokenTree

_ROUNDS = 24
_DRAFTED = 4


class TimedPass(NamedTuple):
    """A pass: its rows, whether they were scored, tokens cached before it, and its seconds."""

    rows: int
    scored: bool
    context: int
    seconds: float


class TimedSession:
    """Session wrapper that times its passes; ``passes`` are those since the last ``take``."""

    def __init__(self, session: Session, clock: Callable[[], float] = perf_counter) -> None:
        self._session, self._clock = session, clock
        self.passes: list[TimedPass] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, tree: TokenTree, start: int = 0, *args: Any, **more: Any) -> Any:
        with self._timed(len(tree) - start, start, scored=True):
            return self._session.forward(tree, start, *args, **more)

    def prefill(self, tokens: Sequence[int], *args: Any, **more: Any) -> Any:
        with self._timed(len(tokens), 0, scored=False):
            return self._session.prefill(tokens, *args, **more)

    def take(self) -> list[TimedPass]:
        """Return the passes, and start a new list."""
        taken, self.passes = self.passes, []
        return taken

    @contextmanager
    def _timed(self, rows: int, pending: int, *, scored: bool) -> Iterator[None]:
        context, begin = self._session.length + pending, self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - begin
            self.passes.append(TimedPass(rows, scored, context, seconds))


class TimedRounds(Metrics):
    """Metrics that keep each round's passes, by session, and its seconds outside them."""

    __slots__ = ("_timers", "outside", "passes")

    def __init__(self, timers: Sequence[TimedSession]) -> None:
        super().__init__()
        self._timers = timers
        self.outside: list[float] = []
        self.passes: list[list[list[TimedPass]]] = []

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        super().observe(record, total_s, lone_row_s)
        taken = [timer.take() for timer in self._timers]
        self.passes.append(taken)
        self.outside.append(total_s - sum(one.seconds for own in taken for one in own))


def overheads(
    target: Session,
    draft: Session | None,
    translation: Translation | None,
    prompt: Sequence[int],
    vocab_size: int,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, float]:
    """Return seconds outside passes: per plain round, and extra per token of a draft model.

    Args:
        target, draft: sessions to decode a few rounds with; emptied first.
        translation: between their vocabularies; None if they are the same.
        prompt: the prompt to continue.
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
    metrics = TimedRounds(timers)
    rounds = engine.run(Request(prompt, sampler, stop), metrics)
    for _ in rounds:
        if len(metrics.outside) >= _ROUNDS:
            break
    rounds.close()  # type: ignore[attr-defined]
    for timer in timers:
        timer.rollback(0)
    # The first round runs with cold processor caches and contains prefill.
    return max(0.0, median(metrics.outside[1:] or metrics.outside))
