"""The session class shared by all graph styles on ONNX Runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, ModelInfo
from edgedec.decoding.session_snapshot import SnapshotSession
from edgedec.runtimes._ort.runner import Runner
from edgedec.runtimes._ort.saved import Rows, rows_from, rows_of, token_bytes


class Saveable(Protocol):
    """Properties of a model that its sessions need."""

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Features of its sessions."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifier of the model in saved states."""
        ...


class OrtSession(SnapshotSession):
    """A cache of rows that a runner's passes fill; a graph style adds the methods below.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.
        runner: of its passes.

    """

    def __init__(self, model: Saveable, capacity: int, runner: Runner) -> None:
        super().__init__(capacity, model.info.vocab_size, model.capabilities, runner.stop)
        self._saveable = model
        self._runner = runner

    # -- implemented by a graph style -----------------------------------------------------------

    @abstractmethod
    def _held(self) -> list[Rows]:
        """Return the caches, ``[entries, kv_heads, slots, width]``, committed rows first."""

    @abstractmethod
    def _take_over(self, rows: Sequence[Rows], length: int) -> None:
        """Begin the cache with these rows, shaped as ``_held`` but with ``length`` slots."""

    @abstractmethod
    def _give_back(self) -> None:
        """Free the cache's memory."""

    # -- shared ---------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        return self._saveable.fingerprint

    def _state(self) -> snapshot.Payload:
        return rows_of(self._held(), self._length)

    def _most_bytes(self) -> int:
        return self.capacity * token_bytes(self._held())

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        self._take_over(rows_from(payload, self._held(), length), length)
        return length

    def _release(self) -> None:
        self._runner.close()
        self._give_back()
