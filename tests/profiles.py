"""Profiles as tests make them up, around ``tests.simulated``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgedec.records.place import Place
from edgedec.records.plan import Candidate, Decision
from edgedec.records.profile import SCHEMA, Contention, Measured, PassTimes, Profile
from edgedec.records.trace import Trace
from edgedec.records.workload import Workload
from tests.simulated import measured, trace

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
    texts: Sequence[Trace] | None = None,
    contention: Sequence[Contention] | None = None,
    overhead_s: float = 1e-4,
) -> Profile:
    """Texts whose tokens the draft gets right with this chance; no two places slow each other."""
    if contention is None:
        contention = [
            Contention(one.place.label, other.place.label, 1.0, 1.0)
            for one in models
            for other in models
            if (one.role, other.role) == ("target", "draft")
        ]
    made = [trace(right, seed=seed) for seed in range(4)] if texts is None else texts
    if not any(model.role == "draft" for model in models):
        made = [replace(text, draft=None) for text in made]
    return Profile(
        SCHEMA, MACHINE, "a bundle", {}, models, tuple(contention), tuple(made), overhead_s
    )


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
