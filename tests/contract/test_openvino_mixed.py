"""Graphs of int4 and int8 together: OpenVINO reads each product in its own bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_models import MemoryTensors, write_tiny_model

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.quantize import MIXED, dequantize, quantize
from edgedec.export.reference import Reference
from edgedec.runtimes.onnx.model import OnnxModel

pytest.importorskip("openvino", reason="needs the extra openvino")
from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

TEXT = list(range(1, 21))


def logits(model: OnnxModel) -> FloatArray:
    session = model.open(32)
    found = session.forward(TokenTree.chain(TEXT)).logits
    assert found is not None
    kept: FloatArray = found.copy()
    session.close()
    return kept


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_each_product_has_its_own_bits(model_type: str, tmp_path: Path) -> None:
    spec, arrays = write_tiny_model(tmp_path, MIXED, model_type=model_type)

    def rounded(bits: dict[str, int]) -> FloatArray:
        stored = dict(arrays)
        for layer in range(spec.layers):
            for role in ("q", "k", "v", "o", "gate", "up", "down"):
                name = spec.name(role, layer)
                done = quantize(arrays[name], bits.get(role, 4), 32)
                stored[name] = dequantize(
                    done.packed, done.scales, bits.get(role, 4), arrays[name].shape[1]
                )
        return Reference(spec, MemoryTensors(stored)).logits(TEXT)

    expected = rounded({"v": 8, "down": 8})
    found = [
        logits(model)
        for model in (
            OnnxModel.load(tmp_path, threads=1, batch_invariant=False),
            OpenVinoModel.compile(tmp_path, threads=1),
        )
    ]
    errors = [np.abs(one - expected).mean() for one in found]
    assert max(errors) < 0.1 * expected.std()
    other = np.abs(rounded({}) - expected).mean()
    assert max(errors) < 0.5 * other, "the control: all in int4 computes something else"
