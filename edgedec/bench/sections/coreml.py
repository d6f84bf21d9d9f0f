"""Measures exports to CoreML, the comparison with the source included."""

from __future__ import annotations

from edgedec.bench.records import Recorder, Row
from edgedec.bench.sections import commands
from edgedec.bench.workshop import GROWN, Suite

_ROUNDED_PLAINLY = ("--weights", "int4", "--calibration", "none")
_EXPORTS = (
    (None, ("--weights", "fp16")),
    (None, ("--weights", "int8")),
    (None, ("--weights", "int4")),
    (None, ("--weights", "lut4")),
    (GROWN, _ROUNDED_PLAINLY),
    ("target-1b", _ROUNDED_PLAINLY),
)


def coreml(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure exports of the target to CoreML, as it ships and grown to 0.5 B and 1.1 B."""
    rows: list[Row] = []
    for preset, weights in _EXPORTS:
        source = suite.shop.checkpoint("target", preset)
        timed = commands.export(
            suite.shop, source, recorder, "--format", "coreml", "--max-context", "512", *weights
        )
        (model,) = timed.report["models"]
        rows.append({"parameters": model["parameters"], **timed.row, "parity": model["parity"]})
    return rows
