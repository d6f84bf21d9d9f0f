"""Compares papers' headline figures with the simulation: every claim with its inputs and range."""

from __future__ import annotations

from typing import Any

from edgedec.bench.papers.claims import claims
from edgedec.bench.papers.reproduction import evaluate
from edgedec.bench.records import Recorder


def run(recorder: Recorder) -> list[dict[str, Any]]:
    """Return one row per claim; the records hold the inputs with their sources."""
    rows = []
    for claim in claims():
        row = evaluate(claim)
        recorder.add(kind="claim", **row.to_json())
        rows.append(
            {
                "paper": row.paper,
                "figure": row.figure,
                "published": round(row.published, 3),
                "produced": f"{row.low:.3g}..{row.high:.3g}",
                "spread": row.spread,
                "verdict": row.verdict,
            }
        )
    return rows
