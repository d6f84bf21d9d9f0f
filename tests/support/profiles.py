"""Profiles as tests make them up, around ``simulated``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import simulated
from simulated import Rounds, measured

from edgedec.planning.choose import Run
from edgedec.planning.contenders import Trials
from edgedec.records.place import Place
from edgedec.records.plan import Candidate, Decision, Plan, Trial
from edgedec.records.profile import SCHEMA, Contention, Measured, PassTimes, Profile
from edgedec.records.workload import Workload

CPU = Place("onnx", threads=2)
FIRST, SECOND = Place("onnx", threads=1, cores=(0,)), Place("onnx", threads=1, cores=(1,))
GPU = Place("gguf", device="Vulkan0")
WORK = Workload(20, 60)
MACHINE = {"cpu": "a processor"}


def times(curve: Mapping[int, float], spread: float = 0.0) -> tuple[PassTimes, ...]:
    """A curve in milliseconds, whatever the context."""
    widths = tuple(sorted(curve))
    seconds = tuple(1e-3 * curve[width] for width in widths)
    return (PassTimes(100, widths, seconds, (spread,) * len(widths)),)


def target(place: Place = CPU, one_row_s: float = 8e-3, **changes: object) -> Measured:
    return measured("target", one_row_s, place=place, **changes)


def draft(place: Place = CPU, one_row_s: float = 1e-3, **changes: object) -> Measured:
    return measured("draft", one_row_s, row_s=one_row_s / 10, place=place, **changes)


def profile(
    *models: Measured,
    right: float = 0.8,
    rounds: Rounds | None = None,
    contention: Sequence[Contention] = (),
    overhead_s: float = 1e-4,
) -> Profile:
    """The draft's tokens are right with this chance; no two places slow each other."""
    with_model = any(model.role == "draft" for model in models)
    made = simulated.rounds(right, with_model=with_model, overhead_s=overhead_s)
    return Profile(
        SCHEMA, MACHINE, "a bundle", {}, models, made if rounds is None else rounds,
        contention=tuple(contention),
    )  # fmt: skip


def ran(speed: Callable[[Plan], float], *, turns: int = 12) -> Run:
    """Run plans, whose tokens per second are given; on a second text they are half as fast."""

    def run(plans: Sequence[Plan], together: bool) -> Trials:
        speeds = {plan: speed(plan) for plan in plans}
        plain = max(speeds[plan] for plan in plans if plan.plain)
        found = {
            plan: Trial(one, one / plain, (1.5 * one / plain, 0.75 * one / plain), 2.0, turns)
            for plan, one in speeds.items()
        }
        return Trials(found)

    return run


PAIR = profile(target(), draft())


def said(decision: Decision, *words: str) -> str:
    """The one reason that has all these words."""
    (found,) = (one for one in decision.reasons if all(word in one for word in words))
    assert found.endswith(".")
    return found


def of(decision: Decision, **wanted: object) -> list[Candidate]:
    """Candidates whose plan has these fields."""
    return [
        one
        for one in decision.candidates
        if all(getattr(one.plan, name) == value for name, value in wanted.items())
    ]


def fastest(decision: Decision, **wanted: object) -> float:
    """Tokens a second of the best usable ones among them."""
    return max(
        one.prediction.tokens_per_second for one in of(decision, **wanted) if not one.refused
    )
