"""The model class shared by all graph styles on ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from edgedec.decoding.session import ModelInfo
from edgedec.errors import StateError
from edgedec.runtimes._ort.saved import fingerprint

Graph = TypeVar("Graph")


class OrtModel(Generic[Graph]):
    """A file and its loaded graph, released on ``close``.

    Attributes:
        info: facts about the model; set by the graph style.
        fingerprint: identifies the model in saved states.

    """

    info: ModelInfo

    def __init__(self, file: Path, graph: Graph) -> None:
        # Now: the file may be another one when a state is saved.
        self.fingerprint = fingerprint(file)
        self._graph: Graph | None = graph

    @property
    def graph(self) -> Graph:
        """The loaded graph.

        Raises:
            StateError: the model is closed.

        """
        if self._graph is None:
            raise StateError("the model is closed: load it again")
        return self._graph

    def close(self) -> None:
        """Release the weights, which are freed when the last session is closed, too."""
        self._graph = None
