"""Stores results of tests of a model on this machine, such as which padding it needs.

Testing a large model takes longer than loading it. A result is stored for one model, its files as
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
from edgedec.hardware.machine import cpu_fields, cpu_name


class KnownOutcomes:
    """The stored outcomes for one model.

    Args:
        kind: kind of outcome, which names the file in the user's cache folder.
        fingerprint: returns a hash of them; OSError means that nothing is stored.
        kernels: their name and version; None if that is unknown, as for a provider whose kernels
            change with its driver.

    """

    def __init__(
        self,
        kind: str,
        files: Sequence[Path],
        fingerprint: Callable[[], str],
        threads: int,
        kernels: str | None,
    ) -> None:
        self._kind, self._kernels = kind, kernels or ""
        self._facts = _facts(files, fingerprint, threads, kernels) if kernels else None

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


def _facts(
    files: Sequence[Path], fingerprint: Callable[[], str], threads: int, kernels: str
) -> str | None:
    fields = cpu_fields()
    try:
        states = [path.stat() for path in files]
        return json.dumps([
            fingerprint(),
            [(one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino) for one in states],
            __version__, threads, kernels, cpu_name(),
            fields.get("flags") or fields.get("features"),
        ])  # fmt: skip
    except OSError:
        return None
