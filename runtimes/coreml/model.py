"""A CoreML program, loaded once and shared by all sessions."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgedec._support.files import open_regular, sampled
from edgedec.coreml import Package, package_files
from edgedec.coreml.constants import Constants
from edgedec.decoding.session import Capabilities, ModelInfo
from edgedec.decoding.session_base import check_capacity
from edgedec.errors import StateError
from edgedec.runtimes.coreml.blending import BlendSession
from edgedec.runtimes.coreml.devices import REFERENCE, check_device
from edgedec.runtimes.coreml.executor import Executor, ReferenceExecutor
from edgedec.runtimes.coreml.facts import ProgramFacts
from edgedec.runtimes.coreml.session import CoremlSession
from edgedec.runtimes.coreml.slicing import SliceSession


class CoremlModel:
    """Implements ``edgedec.decoding.session.Model``; made by ``CoremlModel.load``.

    Args:
        package: the program.
        executor: computes it.

    Attributes:
        info: facts about the model.
        capabilities: features of its sessions.
        facts: of the program.
        fingerprint: identifies the model in saved states.
        session: the class of its sessions.

    """

    def __init__(self, package: Package, executor: Executor) -> None:
        facts = self.facts = ProgramFacts.of(package)
        self.session: type[CoremlSession] = SliceSession if facts.form == "slice" else BlendSession
        self._executor: Executor | None = executor
        self.capabilities = Capabilities(row_widths=facts.rows, top_k=facts.top_k, snapshot=True)
        entries, heads, slots, width = facts.cache
        self.info = ModelInfo(
            name=facts.name,
            vocab_size=facts.vocab_size,
            eos_ids=facts.eos_ids,
            max_context=min(facts.max_context, slots),
            kv_bytes_per_token=entries * heads * width * executor.value_bytes,
            weight_bytes=package.weight_bytes,
        )
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
        from edgedec.runtimes.coreml.mac import MacExecutor

        return cls(package, MacExecutor(package.folder, chosen))

    @property
    def executor(self) -> Executor:
        """What computes the functions.

        Raises:
            StateError: the model is closed.

        """
        if self._executor is None:
            raise StateError("the model is closed: load it again")
        return self._executor

    def open(self, capacity: int) -> CoremlSession:
        """Return a new, empty session."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)

    def close(self) -> None:
        """Release the program."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None


def _fingerprint(folder: Path, value_bytes: int) -> str:
    model, _, weights = package_files(folder)
    digest = hashlib.sha256(model.read_bytes())
    with open_regular(weights) as stream:
        digest.update(repr((sampled(stream), value_bytes)).encode())
    return digest.hexdigest()
