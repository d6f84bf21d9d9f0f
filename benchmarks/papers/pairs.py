"""Runs a pair given by a few seconds, overlapped or sequential, in virtual time.

For figures of papers, which give times and ratios instead of a profile's measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.session_abilities import OnPhase, Phase
from edgedec.loading.engine import build_engine
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.records.trace import Trace
from edgedec.replay.costs import PassCost
from edgedec.replay.run import ReplaySetting, decode, replay
from edgedec.replay.sessions import DRAFT, TARGET, Surroundings, TraceModel, TraceRows, TraceSession
from edgedec.replay.sharing import Shared
from edgedec.replay.virtual_clock import VirtualClock
from edgedec.simulation.synthetic import VOCAB

_WIDEST = 64
_CONTEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class TimedPair:
    """Seconds of a target and a draft.

    Attributes:
        target_s: of the target's pass over one row.
        draft_s: of the draft's pass.
        verify_s: of the target's pass over more rows; None is the time of one row.
        load_share: share of the target's passes in which weights load.
        slowed: factor by which target and draft slow each other while both run.
        round_s: of a round, outside passes.

    """

    target_s: float
    draft_s: float
    verify_s: float | None = None
    load_share: float = 0.0
    slowed: float = 1.0
    round_s: float = 0.0

    def plain(self) -> float:
        """Return tokens per second of the target alone."""
        return 1 / self.target_s

    def sequential(self, text: Trace, draft_length: int) -> Metrics:
        """Draft ``draft_length`` tokens and verify them, in turn."""
        setting = ReplaySetting(
            self.measured(TARGET), self.measured(DRAFT), overhead_s=self.round_s
        )
        place = setting.target.place
        (metrics,) = replay(
            setting, Plan(place, place, "model", draft_length), [text], len(text.tokens)
        )
        return metrics

    def overlapped(self, text: Trace, draft_length: int, *, branching: bool = True) -> Metrics:
        """Draft while the target computes, or while it loads.

        With ``branching`` the draft also expands what may follow a rejection (Mirror-SD); else only
        what follows full acceptance (PEARL).
        """
        # On the target's own device, the draft works while the target's weights load.
        device = TARGET if self.load_share else DRAFT
        target_place, draft_place = Place("simulated", TARGET), Place("simulated", device)
        plan = Plan(target_place, draft_place, "model", draft_length, schedule=OVERLAPPED)
        factors = {} if self.slowed == 1 else {TARGET: self.slowed, DRAFT: self.slowed}
        with VirtualClock() as clock:
            around = Surroundings(clock, Shared(clock, factors), self.round_s)
            target = self._open(TARGET, text, around)
            draft = self._open(DRAFT, text, Surroundings(clock, around.shared))
            parts = DrafterParts(VOCAB, draft, draft_branches=None if branching else 1)
            engine = build_engine(plan, target, parts, clock, policy=Fixed(draft_length))
            _, metrics = decode(engine, text, VOCAB, len(text.tokens))
            engine.drafter.close()
        return metrics

    def measured(self, role: str) -> Measured:
        """Return a role's measurements as a profile has them."""
        one_s = self.target_s if role == TARGET else self.draft_s
        more_s = self.verify_s or one_s if role == TARGET else one_s
        times = PassTimes(0, (1, 2, _WIDEST), (one_s, more_s, more_s), (0.0,) * 3)
        return Measured(
            role=role,
            name=role,
            place=Place("simulated", role),
            times=(times,),
            prefill_s=0.0,
            launch_s=0.0,
            transfer_s=0.0,
            load_s=0.0,
            rss_bytes=0,
            weight_bytes=0,
            kv_bytes_per_token=0,
            max_context=_CONTEXT,
            vocab_size=VOCAB,
            row_widths=None,
            branches=None,
            parity=Parity(1.0, 0.0, True),
            steady=True,
        )

    def _open(self, role: str, text: Trace, around: Surroundings) -> TraceSession:
        cost = PassCost(self.measured(role), text.prompt)
        model = TraceModel(TraceRows(text, role, VOCAB), role, cost, around)
        capacity = len(text.tokens) + _WIDEST
        if role == TARGET and self.load_share:
            return _Streamed(model, capacity, self.load_share)
        return model.open(capacity)


class _Streamed(TraceSession):
    """A target whose passes load for the first part, and compute in the rest."""

    def __init__(self, model: TraceModel, capacity: int, load_share: float) -> None:
        super().__init__(model, capacity)
        self._load_share = load_share
        self._on_phase: OnPhase | None = None

    def watch(self, on_phase: OnPhase | None) -> None:
        self._on_phase = on_phase

    def _compute(self, seconds: float) -> None:
        self._tell(Phase.LOAD)
        super()._compute(seconds * self._load_share)
        self._tell(Phase.COMPUTE)
        super()._compute(seconds * (1 - self._load_share))

    def _tell(self, phase: Phase) -> None:
        if self._on_phase is not None:
            self._on_phase(phase)
