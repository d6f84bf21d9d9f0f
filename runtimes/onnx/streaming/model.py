"""Weights on ONNX Runtime that pass through memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.runtimes.onnx.graph import Graph
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.padding import Padding
from edgedec.runtimes.onnx.streaming.opening import open_streamed
from edgedec.runtimes.onnx.streaming.session import StreamedOnnxSession

__all__ = ["StreamedOnnxModel", "open_streamed"]


class StreamedOnnxModel(OnnxModel):
    """A model whose weights pass through memory."""

    session = StreamedOnnxSession

    def __init__(
        self, file: Path, graph: Graph, weight_bytes: int, padding: Padding | None, threads: int
    ) -> None:
        super().__init__(file, graph, weight_bytes, padding, threads)
        self.capabilities = dataclasses.replace(self.capabilities, phases=True)
