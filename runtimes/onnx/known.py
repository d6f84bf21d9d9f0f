"""Stores results of tests of a graph on this machine, such as which padding it needs.

Testing a large model takes longer than loading it. A result is stored for one graph, its files as
they are on the disk, the kernels, the number of threads and the version of edgedec; when any of
them changes, the test is repeated. Where nothing can be stored, it is repeated at every load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from edgedec._support.opened_before import OpenedBefore
from edgedec._version import __version__
from edgedec.bundle.onnx_file import ModelFile
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.runtimes._ort.saved import fingerprint


class KnownOutcomes:
    """The stored outcomes for one graph.

    Args:
        kind: kind of outcome, which names the file in the user's cache folder.
        file: the graph's file.
        stored: its contents from ``read_model_file``.
        threads: threads of a pass.
        kernels: their name and version; None if that is unknown, as for a provider whose kernels
            change with its driver.

    """

    def __init__(
        self, kind: str, file: Path, stored: ModelFile, threads: int, kernels: str | None
    ) -> None:
        self._kind, self._kernels = kind, kernels or ""
        self._facts = _facts(file, stored, threads, kernels) if kernels else None

    def get(self, outcomes: Sequence[str], search: Callable[[], str]) -> str:
        """Return the stored one of these outcomes, or search for it and store it."""
        if self._facts is None:
            return search()
        known = OpenedBefore(self._kind, self._kernels)
        asked = f"{self._facts}|{'|'.join(outcomes)}"
        for outcome in outcomes:
            if known.opened(_digest(asked, outcome)):
                return outcome
        found = search()
        known.remember(_digest(asked, found))
        known.save()
        return found


def _digest(asked: str, outcome: str) -> str:
    return hashlib.sha256(f"{asked}||{outcome}".encode()).hexdigest()


def _facts(file: Path, stored: ModelFile, threads: int, kernels: str) -> str | None:
    fields = cpu_fields()
    try:
        locations = sorted({location for location, _, _ in stored.stored})
        states = [path.stat() for path in (file, *(file.parent / name for name in locations))]
        return json.dumps([
            fingerprint(file, stored),
            [(one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino) for one in states],
            __version__, threads, kernels, cpu_name(),
            fields.get("flags") or fields.get("features"),
        ])  # fmt: skip
    except OSError:
        return None
