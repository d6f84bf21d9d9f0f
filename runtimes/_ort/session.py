"""The model and session classes shared by all graph styles on ONNX Runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from edgedec.decoding import snapshot
from edgedec.decoding.session import Capabilities, ModelInfo
from edgedec.decoding.session_base import SnapshotSession
from edgedec.errors import StateError
from edgedec.runtimes._ort.runner import Runner
from edgedec.runtimes._ort.saved import Rows, fingerprint, rows_from, rows_of, token_bytes

Graph = TypeVar("Graph")


class OrtModel(Generic[Graph]):
    """A file and its loaded graph, released on ``close``.

    Attributes:
        info: facts about the model; set by the graph style.
        capabilities: features of its sessions; set by the graph style.
        fingerprint: identifies the model in saved states.

    """

    info: ModelInfo
    capabilities: Capabilities

    def __init__(self, file: Path, graph: Graph) -> None:
        # At load, since the file may be replaced before a state is saved.
        self.fingerprint = fingerprint(file)
        self._graph: Graph | None = graph

    @property
    def graph(self) -> Graph:
        """The loaded graph; StateError once the model is closed."""
        if self._graph is None:
            raise StateError("the model is closed: load it again")
        return self._graph

    def close(self) -> None:
        """Release the weights, which are freed once all sessions are closed as well."""
        self._graph = None


class OrtSession(SnapshotSession):
    """A session whose passes a runner computes; a graph style adds the abstract methods.

    Args:
        model: owner of the weights.
        capacity: tokens that fit.

    """

    def __init__(self, model: OrtModel[Any], capacity: int, runner: Runner) -> None:
        super().__init__(capacity, model.info.vocab_size, model.capabilities, runner.stop)
        self._owner = model
        self._runner = runner

    # -- implemented by a graph style -----------------------------------------------------------

    @abstractmethod
    def _held(self) -> list[Rows]:
        """Return the caches, ``[entries, kv_heads, slots, width]``, committed rows first."""

    @abstractmethod
    def _load_rows(self, rows: Sequence[Rows], length: int) -> None:
        """Start the cache with these rows, shaped as ``_held`` but with ``length`` slots."""

    @abstractmethod
    def _free_cache(self) -> None:
        """Free the cache's memory."""

    # -- shared ---------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        return self._owner.fingerprint

    def _state(self) -> snapshot.Payload:
        return rows_of(self._held(), self._length)

    def _most_bytes(self) -> int:
        return self.capacity * token_bytes(self._held())

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        self._load_rows(rows_from(payload, self._held(), length), length)
        return length

    def _release(self) -> None:
        self._runner.close()
        self._free_cache()
