"""A model on ONNX Runtime whose weights are streamed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedec.bundle.onnx_file import ModelFile
from edgedec.decoding.session import OnPhase, Phase
from edgedec.hardware.resident import release_free
from edgedec.runtimes.onnx.graph import Graph, GraphFacts
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.padding import Padding
from edgedec.runtimes.onnx.passes import Passes
from edgedec.runtimes.onnx.session import OnnxSession
from edgedec.runtimes.onnx.streaming.chain import Chain
from edgedec.runtimes.onnx.streaming.opening import open_streamed

# Rows from which a pass's activations are worth releasing to the system.
_WIDE = 16


class StreamedPasses(Passes):
    """Passes that report when weights load and when they are used.

    Attributes:
        on_phase: called at each change of phase; None for no calls.

    """

    on_phase: OnPhase | None = None

    def _locked_run(self, tokens: Sequence[int], *more: Any) -> None:
        super()._locked_run(tokens, *more)
        if len(tokens) >= _WIDE:
            release_free()

    def _pass(self, binding: Any) -> None:
        self._graph.inference.run_with_iobinding(binding, self.options, self._tell)

    def _tell(self, phase: Phase) -> None:
        if self.on_phase is not None:
            self.on_phase(phase)


class StreamedOnnxSession(OnnxSession):
    """Implements ``edgedec.decoding.session.StreamedSession``."""

    passes = StreamedPasses
    _passes: StreamedPasses

    def watch(self, on_phase: OnPhase | None) -> None:
        """See ``StreamedSession``."""
        self._passes.on_phase = on_phase


class StreamedOnnxModel(OnnxModel):
    """A model whose weights are streamed; made by ``StreamedOnnxModel.stream``."""

    session = StreamedOnnxSession

    def __init__(
        self, file: Path, graph: Graph, weight_bytes: int, padding: Padding | None, threads: int
    ) -> None:
        super().__init__(file, graph, weight_bytes, padding, threads)
        self.capabilities = dataclasses.replace(self.capabilities, phases=True)

    @classmethod
    def stream(
        cls,
        path: Path | str,
        weight_memory: int,
        *,
        threads: int | None = None,
        providers: Sequence[str] = (),
        batch_invariant: bool | None = None,
        may_pad: bool = True,
    ) -> OnnxModel:
        """Load a graph whose weights are read from the disk in every pass.

        Args:
            path: ``model.onnx``, or its folder.
            weight_memory: most bytes of weights in memory at once.
            threads: see ``OnnxModel.load``.
            providers: the CPU's, or empty.
            batch_invariant, may_pad: see ``OnnxModel.load``.

        Raises:
            EdgedecError: see ``open_streamed`` and ``OnnxModel.load``.

        """

        def inference(file: Path, stored: ModelFile, threads: int) -> Chain:
            GraphFacts.parse(stored.metadata, str(file)).check_attends(str(file), "--weight-memory")
            return open_streamed(file, threads, weight_memory, providers)

        return cls._load(path, inference, threads, batch_invariant, may_pad)
