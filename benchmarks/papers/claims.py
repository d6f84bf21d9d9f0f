"""Compares headline figures of papers with the real engine and scheduler in virtual time.

A figure is reproduced if it lies in the range of the simulation over all corners of its inputs'
ranges, and that range is within 20% either way of its middle. The papers' measurements of their own
methods are never inputs; those of hardware, baselines and acceptance are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.papers import dovetail_figures, overlap, theory
from benchmarks.papers.reproduction import Claim, ClaimRow, evaluate
from edgedec.compare.records import Recorder, Row

if TYPE_CHECKING:
    from benchmarks.bundles import Suite


def claims() -> list[Claim]:
    """Return all figures that are compared with the simulation."""
    return [*theory.claims(), *dovetail_figures.claims(), *overlap.claims()]


def report(on_claim: Callable[[str], object] = lambda figure: None) -> list[ClaimRow]:
    """Simulate all corners of all claims, which takes minutes; ``on_claim`` is told each before."""
    rows = []
    for claim in claims():
        on_claim(f"{claim.paper}: {claim.figure}")
        rows.append(evaluate(claim))
    return rows


def papers(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare papers' headline figures with the engine and the scheduler in virtual time.

    The records hold the inputs with their sources.
    """
    rows: list[Row] = []
    for row in report():
        recorder.add(kind="claim", **row.to_json())
        rows.append(
            {
                "paper": row.claim.paper,
                "figure": row.claim.figure,
                "published": round(row.claim.published, 3),
                "produced": f"{row.low:.3g}..{row.high:.3g}",
                "spread": row.spread,
                "verdict": row.verdict,
            }
        )
    return rows
