"""Paces a target to the time of a larger one, so that a person can watch it decode."""

from __future__ import annotations

from edgedec.decoding.policy import CostCurve, Fixed, MeasuredCost
from edgedec.pipeline import Pipeline
from edgedec.testing.paced import PacedModel, PacedSession

# Pass times over that of one row: a half-billion decoder in int4 on two x86-64 cores
# (docs/measurements/formats.jsonl).
_ROWS = (1, 2, 3, 4, 8, 16)
_RATIOS = (1.0, 1.16, 1.38, 1.53, 2.32, 3.86)
# Chunks of a prompt are wider, and are not paced.
_MOST_ROWS = 32


def curve(one_row_s: float) -> CostCurve:
    """Return the cost curve of passes whose single row takes ``one_row_s`` seconds."""
    return CostCurve(_ROWS, tuple(one_row_s * ratio for ratio in _RATIOS))


def hold(pipeline: Pipeline, one_row_s: float) -> None:
    """Pace a pipeline's target to ``curve(one_row_s)`` from now on.

    A slower pass takes its own time. A policy of measured costs gets the paced ones.
    """
    engine, held = pipeline.engine, curve(one_row_s)

    def seconds(rows: int, context: int) -> float:
        return held.at(rows) if rows <= _MOST_ROWS else 0.0

    engine.target = engine.texts.session = PacedSession(
        PacedModel(pipeline.target, seconds), engine.target
    )
    if isinstance(engine.policy, MeasuredCost):
        engine.policy = MeasuredCost(held, engine.policy.draft_s)
    elif isinstance(engine.policy, Fixed) and engine.policy.lone_row_s is not None:
        engine.policy.lone_row_s = held.at(1)
