"""A CoreML program, loaded once and shared by all sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedec._support.files import open_regular, sampled
from edgedec.coreml import Package, package_files
from edgedec.coreml.constants import Constants
from edgedec.coreml.types import Array
from edgedec.runtimes._static.executor import Executor
from edgedec.runtimes._static.model import StaticShapeModel
from edgedec.runtimes._static.session import FreeSlots, StaticShapeSession
from edgedec.runtimes.coreml.devices import REFERENCE, check_device
from edgedec.runtimes.coreml.executor import ReferenceExecutor
from edgedec.runtimes.coreml.facts import ProgramFacts


class SliceSession(StaticShapeSession):
    """A pending node's slot follows those before it, so that an accepted chain is in place."""

    runtime = "coreml"
    _facts: ProgramFacts

    def _place(self, count: int) -> list[int]:
        begin = self._length + len(self._pending_slots)
        return list(range(begin, begin + count))

    def _room(self) -> int:
        # Rows of padding are written as well, behind the last node.
        return self._facts.slots - self._length - len(self._pending_slots)

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        return {"begin": np.array(slots[:1], np.int32)}

    def _gather(self, path: Sequence[int]) -> list[int]:
        length, rows = self._length, self._facts.moved_rows
        sources = [self._pending_slots[node] for node in path]
        wanted = list(range(length, length + len(path)))
        first = next(
            (i for i, (a, b) in enumerate(zip(sources, wanted, strict=True)) if a != b), None
        )
        for start in range(len(path) if first is None else first, len(path), rows):
            self._move(sources[start : start + rows], wanted[start])
        return wanted

    def _move(self, sources: Sequence[int], to: int) -> None:
        """Copy the tokens of these slots to ``to`` and following; the others stay."""
        rows = self._facts.moved_rows
        begin = min(to, self._facts.slots - rows)
        source = np.arange(begin, begin + rows, dtype=np.int32)
        source[to - begin : to - begin + len(sources)] = sources
        feeds = {"source": source, "begin": np.array([begin], np.int32)}
        self._executor.predict(self._facts.moved, feeds, self._cache, lambda: None)


class BlendSession(FreeSlots):
    """A mask over all slots says where a pass writes its rows."""

    runtime = "coreml"

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        place = np.zeros((1, width, self._facts.slots), np.float32)
        place[0, np.arange(len(slots)), slots] = 1
        keep = np.float32(1) - place.sum(axis=1)
        return {"place": place, "keep": keep[..., None]}


class CoremlModel(StaticShapeModel):
    """Implements ``edgedec.decoding.session.Model``; made by ``CoremlModel.load``."""

    facts: ProgramFacts

    def __init__(self, package: Package, executor: Executor) -> None:
        facts = ProgramFacts.of(package)
        super().__init__(facts, executor, package.weight_bytes)
        self.session = SliceSession if facts.form == "slice" else BlendSession
        self.fingerprint = _fingerprint(package.folder, executor.value_bytes)

    @classmethod
    def load(cls, path: Path, *, device: str | None = None, exact: bool = True) -> CoremlModel:
        """Load a package that ``edgedec export`` wrote.

        Args:
            path: its ``model.mlmodel``, or the package.
            device: ``gpu`` (a Mac's, the default), ``ane``, ``cpu``, or ``reference``.
            exact: whether the reference keeps values in float32, or rounds them to fp16.

        Raises:
            BundleError: a file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: the device is not here.

        """
        package = Package.open(path)
        chosen = check_device(device, str(package.folder))
        if chosen == REFERENCE:
            return cls(package, ReferenceExecutor(Constants(package, exact=exact)))
        from edgedec.runtimes.coreml.compiled import CompiledProgram
        from edgedec.runtimes.coreml.mac import MacExecutor

        return cls(package, MacExecutor(CompiledProgram(package.folder), chosen))


def _fingerprint(folder: Path, value_bytes: int) -> str:
    model, _, weights = package_files(folder)
    digest = hashlib.sha256(model.read_bytes())
    with open_regular(weights) as stream:
        digest.update(repr((sampled(stream), value_bytes)).encode())
    return digest.hexdigest()
