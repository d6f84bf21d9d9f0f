"""What tells two models apart, for which a saved state is good."""

from __future__ import annotations

import shutil
from pathlib import Path

from tiny_models import write_tiny_model

from edgedec.runtimes._ort.saved import fingerprint

# Its weights are several megabytes.
LARGE = {"num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 1024}


def test_models_with_the_same_embeddings_are_told_apart(tmp_path: Path) -> None:
    """As one that was trained further with its embeddings held: they stand first in the file."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    write_tiny_model(one, "fp32", **LARGE)
    shutil.copytree(one, other)
    assert fingerprint(one / "model.onnx") == fingerprint(other / "model.onnx")
    data = next(other.glob("*.data"))
    size = data.stat().st_size
    assert size > 3 << 20
    with data.open("r+b") as file:
        file.seek(2 << 20)
        file.write(bytes(size - (2 << 20)))
    assert fingerprint(one / "model.onnx") != fingerprint(other / "model.onnx")
