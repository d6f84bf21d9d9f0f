"""Remembers which padding makes a graph's rows independent of each other on this machine.

The search takes fifteen passes, for a large model a third of its loading. Its outcome is kept for
one graph, its files as they are on the disk, these kernels, this number of threads and this search,
that is this version of edgedec; when any of them changes it is searched again. Where nothing can be
kept it is searched at every load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime as ort

from edgedec._support.vetted import Vetted
from edgedec._version import __version__
from edgedec.bundle.onnx_file import ModelFile
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.saved import fingerprint
from edgedec.runtimes.onnx.padding import Padding

_KIND = "paddings"
_NONE = "nothing holds"


class KnownPaddings:
    """The remembered outcomes for one graph.

    Args:
        file: the graph's.
        stored: what ``read_model_file`` found in it.
        threads: for one pass.
        providers: of the session.

    """

    def __init__(
        self, file: Path, stored: ModelFile, threads: int, providers: Sequence[str]
    ) -> None:
        # Another provider's kernels change with its driver, which is not known here.
        self._facts = _facts(file, stored, threads) if set(providers) == {CPU} else None

    def get(
        self, paddings: Sequence[Padding], search: Callable[[], Padding | None]
    ) -> Padding | None:
        """Return the first of these paddings that holds, searched for unless it is known."""
        if self._facts is None:
            return search()
        vetted = Vetted(_KIND, ort.__version__)
        asked = f"{self._facts}|{'|'.join(padding.name for padding in paddings)}"
        for outcome in (*paddings, None):
            if vetted.opened(_digest(asked, outcome)):
                return outcome
        found = search()
        vetted.remember(_digest(asked, found))
        vetted.save()
        return found


def _digest(asked: str, outcome: Padding | None) -> str:
    name = outcome.name if outcome else _NONE
    return hashlib.sha256(f"{asked}||{name}".encode()).hexdigest()


def _facts(file: Path, stored: ModelFile, threads: int) -> str | None:
    fields = cpu_fields()
    try:
        locations = sorted({location for location, _, _ in stored.stored})
        states = [path.stat() for path in (file, *(file.parent / name for name in locations))]
        return json.dumps([
            fingerprint(file, stored),
            [(one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino) for one in states],
            __version__, threads, ort.get_build_info(), cpu_name(),
            fields.get("flags") or fields.get("features"),
        ])  # fmt: skip
    except OSError:
        return None
