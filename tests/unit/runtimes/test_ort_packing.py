"""A packed graph computes the same bits from mapped weights; others' weights are not believed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from packed_logits import logits
from tiny_models import write_tiny_model

from edgedec.runtimes._ort.opening import SessionFailed
from edgedec.runtimes._ort.packed import pack

SIZES = {"hidden_size": 256, "intermediate_size": 512}


def packed(source: Path, out: Path) -> Path:
    out.mkdir()
    pack(str(source / "model.onnx"), out / "model.onnx", out / "model.onnx.data")
    return out


def test_a_model_of_bytes_has_its_weights_elsewhere(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "a", "int4", **SIZES)
    (tmp_path / "out").mkdir()
    files = tmp_path / "out/model.onnx", tmp_path / "out/own.data"
    pack((tmp_path / "a/model.onnx").read_bytes(), *files, folder=tmp_path / "a")
    assert np.array_equal(logits(tmp_path / "out"), logits(tmp_path / "a"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_packed_weights_are_pages_of_the_file(tmp_path: Path) -> None:
    from edgedec.runtimes.onnx.model import OnnxModel

    def mapped(folder: Path) -> int:
        model = OnnxModel.load(folder, threads=1)
        lines = Path("/proc/self/maps").read_text().splitlines()
        ranges = [line.split()[0].split("-") for line in lines if str(folder) in line]
        model.close()
        return sum(int(end, 16) - int(start, 16) for start, end in ranges)

    big = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 1}
    write_tiny_model(tmp_path / "a", "int4", **big)
    packed_bytes = mapped(packed(tmp_path / "a", tmp_path / "packed"))
    stored = (tmp_path / "a/model.onnx.data").stat().st_size
    # Unpacked int4 weights are unmapped once they are packed.
    assert packed_bytes > 0.5 * stored
    assert packed_bytes > mapped(tmp_path / "a")


def test_a_graph_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08no")
    with pytest.raises(SessionFailed):
        packed(tmp_path, tmp_path / "packed")
