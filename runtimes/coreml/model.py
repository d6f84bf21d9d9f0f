"""A CoreML program, loaded once and shared by all sessions."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgedec._support.files import open_regular, sampled
from edgedec.coreml import Package, package_files
from edgedec.coreml.constants import Constants
from edgedec.runtimes._static.executor import Executor
from edgedec.runtimes._static.model import StaticShapeModel
from edgedec.runtimes.coreml.blending import BlendSession
from edgedec.runtimes.coreml.devices import REFERENCE, check_device
from edgedec.runtimes.coreml.executor import ReferenceExecutor
from edgedec.runtimes.coreml.facts import ProgramFacts
from edgedec.runtimes.coreml.slicing import SliceSession


class CoremlModel(StaticShapeModel):
    """Implements ``edgedec.decoding.session.Model``; made by ``CoremlModel.load``.

    Args:
        package: the program.
        executor: computes it.

    """

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
