"""A head on ONNX Runtime: the fusion of the target's streams, and a layer that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.fusion import FusedModel
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.session import OnnxSession

HEAD_FILE = "head.onnx"


class OnnxHeadSession(OnnxSession):
    """Implements ``edgedec.decoding.session.HeadSession``."""

    runtime = "onnx-head"
    # Whether passes read states that it makes up itself.
    _blank = False

    def carry(self, rows: FloatArray) -> None:
        """See ``HeadSession``."""
        self._given = rows

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        return super()._score(tree, start, want | Want.STATES)

    def _run(self, tokens: Sequence[int], past: int, **more: Any) -> None:
        count = len(tokens)
        if self._blank:
            assert isinstance(self._model, OnnxHead), "heads open such sessions"
            self.carry(self._model.fuse(np.zeros((count, self._model.state_width), np.float32)))
        self._passes.carried, self._given = self._given[:count], self._given[count:]
        super()._run(tokens, past, **more)

    def rehearse(self, length: int, rows: int) -> None:
        """See ``Rehearsing``; the states are zeros, which are fused like others."""
        blank, self._blank = self._blank, True
        try:
            super().rehearse(length, rows)
        finally:
            self._blank = blank


class OnnxHead(FusedModel, OnnxModel):
    """Implements ``edgedec.decoding.session.HeadModel``; made by ``with_fusion``."""

    session = OnnxHeadSession

    @classmethod
    def with_fusion(cls, path: Path, *, threads: int | None = None) -> OnnxHead:
        """Load a head that ``edgedec export --head`` wrote.

        Args:
            path: ``head.onnx``, beside ``fuse.onnx`` and the target's weights.
            threads: threads of a pass; None is one per core that this process may use.

        Raises:
            BundleError: a file is missing, damaged, or not a head of edgedec's.

        """
        head = cls.load(path, threads=threads, batch_invariant=False)
        assert isinstance(head, OnnxHead), "load() makes one of its class"
        head.add_fusion(path)
        return head

    def open(self, capacity: int) -> OnnxHeadSession:
        """Return a new, empty session."""
        session = super().open(capacity)
        assert isinstance(session, OnnxHeadSession), "the class of its sessions"
        return session

    def blank(self, capacity: int) -> OnnxHeadSession:
        """See ``HeadModel``."""
        session = self.open(capacity)
        session._blank = True
        return session
