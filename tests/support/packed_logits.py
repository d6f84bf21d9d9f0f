"""The logits of a text by a graph in a folder, to compare bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.model import OnnxModel


def logits(folder: Path) -> FloatArray:
    """Read a prompt, then passes of one, three and two tokens; return the rows of the latter."""
    return model_logits(OnnxModel.load(folder, threads=1))


def model_logits(model: OnnxModel) -> FloatArray:
    """The same for a loaded model, which is closed."""
    session = model.open(64)
    session.prefill([5, 6, 7, 8, 9])
    rows = []
    for tokens in ([3], [4, 8, 15], [16, 23]):
        found = session.forward(TokenTree.chain(tokens), want=Want.LOGITS).logits
        assert found is not None
        rows.append(found.copy())
        session.commit(range(len(tokens)))
    session.close()
    model.close()
    return np.concatenate(rows)
