"""Outcomes of tests of a graph on this machine."""

from __future__ import annotations

from pathlib import Path

from edgedec.bundle.onnx_file import ModelFile
from edgedec.hardware.outcomes import KnownOutcomes
from edgedec.runtimes._ort.saved import fingerprint, locations


def known_outcomes(
    kind: str, file: Path, stored: ModelFile, threads: int, kernels: str | None
) -> KnownOutcomes:
    """Return the stored outcomes for one graph.

    Args:
        kind, threads, kernels: see ``KnownOutcomes``.
        file: the graph's file.
        stored: its contents from ``read_model_file``.

    """
    files = [file, *(file.parent / name for name in locations(stored))]
    return KnownOutcomes(kind, files, lambda: fingerprint(file, stored), threads, kernels)
