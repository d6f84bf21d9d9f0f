"""The fusion of a target's streams for a head, a graph of its own beside the head's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.tree import FloatArray
from edgedec.errors import BundleError, PassFailed
from edgedec.runtimes._ort.opening import one_line, open_inference
from edgedec.runtimes._ort.session import OrtModel

FUSE_FILE = "fuse.onnx"
_FLOATS = "tensor(float)"


class Fusion:
    """Loads ``fuse.onnx`` beside a head.

    Args:
        head: ``head.onnx``.
        width: columns of the states.
        hidden: columns of its output.
        threads: threads of a pass.

    Raises:
        BundleError: it is missing, damaged, or of another head.

    """

    def __init__(self, head: Path, width: int, hidden: int, threads: int) -> None:
        file = head.with_name(FUSE_FILE)
        stored = read_model_file(file)
        self.weight_bytes = stored.weight_bytes
        self._inference: Any = open_inference(file, stored, threads)
        nodes = (*self._inference.get_inputs(), *self._inference.get_outputs())
        ends = {node.name: (node.type, *node.shape[-1:]) for node in nodes}
        widths = {"states": width, "carried": hidden}
        if not hidden or ends != {name: (_FLOATS, width) for name, width in widths.items()}:
            raise BundleError(f"{head}: not a head with its fusion: export it again")

    def __call__(self, states: FloatArray) -> FloatArray:
        """See ``HeadModel.fuse``."""
        try:
            (carried,) = self._inference.run(["carried"], {"states": states[None]})
        except Exception as error:  # ONNX Runtime's own errors share no public base
            raise PassFailed(f"ONNX Runtime could not run a pass: {one_line(error)}") from error
        found: FloatArray = np.asarray(carried[0])
        return found


class FusedModel(OrtModel[Any]):
    """A head with its fusion.

    Attributes:
        reads: see ``HeadModel``.

    """

    reads: tuple[int, ...]
    _fusion: Fusion | None = None

    def add_fusion(self, head: Path) -> None:
        """Load the fusion beside the head's file; BundleError as of ``Fusion``."""
        self.reads = self.graph.facts.reads
        self._fusion = Fusion(head, self.state_width, self.graph.hidden, self.info.threads)
        weight_bytes = self.info.weight_bytes + self._fusion.weight_bytes
        self.info = replace(self.info, weight_bytes=weight_bytes)

    @property
    def state_width(self) -> int:
        """See ``HeadModel``."""
        return len(self.reads) * int(self.graph.hidden)

    def fuse(self, states: FloatArray) -> FloatArray:
        """See ``HeadModel``."""
        assert self._fusion is not None, "add_fusion() makes it"
        return self._fusion(states)

    def close(self) -> None:
        """Release the weights."""
        super().close()
        self._fusion = None
