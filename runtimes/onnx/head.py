"""A head on ONNX Runtime: the fusion of the target's streams, and a layer that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.session import ModelInfo, Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, PassFailed
from edgedec.runtimes._ort.opening import one_line, open_inference
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.session import OnnxSession

HEAD_FILE, FUSE_FILE = "head.onnx", "fuse.onnx"
_FLOATS = "tensor(float)"


class OnnxHeadSession(OnnxSession):
    """Implements ``edgedec.decoding.session_abilities.HeadSession``."""

    runtime = "onnx-head"

    def carry(self, rows: FloatArray) -> None:
        """See ``HeadSession``."""
        self._given = rows

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        return super()._score(tree, start, want | Want.STATES)

    def _run(self, tokens: Sequence[int], past: int, **more: Any) -> None:
        count = len(tokens)
        self._passes.carried, self._given = self._given[:count], self._given[count:]
        super()._run(tokens, past, **more)


class OnnxHead:
    """Implements ``edgedec.decoding.session_abilities.HeadModel``; made by ``OnnxHead.load``.

    Attributes:
        reads: see ``HeadModel``.

    """

    def __init__(self, model: OnnxModel, fusion: Any) -> None:
        self._model, self._fusion = model, fusion
        model.session = OnnxHeadSession
        self.reads = model.graph.facts.reads

    @classmethod
    def load(cls, path: Path, *, threads: int | None = None) -> OnnxHead:
        """Load a head that ``edgedec export --head`` wrote.

        Args:
            path: ``head.onnx``, beside ``fuse.onnx`` and the target's weights.
            threads: threads of a pass; None is one per core that this process may use.

        Raises:
            BundleError: a file is missing, damaged, or not a head of edgedec's.

        """
        model = OnnxModel.load(path, threads=threads, batch_invariant=False)
        facts = model.graph.facts
        file = path.with_name(FUSE_FILE)
        stored = read_model_file(file)
        fusion = open_inference(file, stored, model.info.threads)
        nodes = (*fusion.get_inputs(), *fusion.get_outputs())
        ends = {node.name: (node.type, *node.shape[-1:]) for node in nodes}
        hidden = model.graph.hidden
        widths = {"states": len(facts.reads) * hidden, "carried": hidden}
        if not hidden or ends != {name: (_FLOATS, width) for name, width in widths.items()}:
            raise BundleError(f"{path}: not a head with its fusion: export it again")
        return cls(model, fusion)

    @property
    def info(self) -> ModelInfo:
        """Facts about the head, without those of its fusion."""
        return self._model.info

    def fuse(self, states: FloatArray) -> FloatArray:
        """See ``HeadModel``."""
        try:
            (carried,) = self._fusion.run(["carried"], {"states": states[None]})
        except Exception as error:  # ONNX Runtime's own errors share no public base
            raise PassFailed(f"ONNX Runtime could not run a pass: {one_line(error)}") from error
        found: FloatArray = np.asarray(carried[0])
        return found

    def open(self, capacity: int) -> OnnxHeadSession:
        """Return a new, empty session."""
        session = self._model.open(capacity)
        assert isinstance(session, OnnxHeadSession), "set when it was loaded"
        return session

    def close(self) -> None:
        """Release the weights."""
        self._model.close()
        self._fusion = None
