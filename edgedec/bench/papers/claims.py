"""Headline figures of papers, held against the real engine and scheduler in virtual time.

A figure is reproduced when it lies in the range that the simulation gives over all corners of
its inputs' ranges, and that range is within 20% either way of its middle. What the papers
measured of their methods is never an input; what they measured of hardware, baselines and
acceptance is.
"""

from __future__ import annotations

from collections.abc import Callable

from edgedec.bench.papers import dovetail_figures, overlap, theory
from edgedec.bench.papers.reproduction import Claim, ClaimRow, evaluate


def claims() -> list[Claim]:
    """All figures that are held against the simulation."""
    return [*theory.claims(), *dovetail_figures.claims(), *overlap.claims()]


def report(told: Callable[[str], object] = lambda figure: None) -> list[ClaimRow]:
    """Simulate all corners of all claims: a minute or two.

    Args:
        told: called with each claim's name before it is simulated.

    """
    rows = []
    for claim in claims():
        told(f"{claim.paper}: {claim.figure}")
        rows.append(evaluate(claim))
    return rows
