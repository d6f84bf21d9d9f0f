"""What quantised weights stand for in float32: the measure of kernels that multiply them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgedec.export.quantize import dequantize, quantize
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec


def rounded(
    spec: DecoderSpec, arrays: Mapping[str, FloatArray], bits: int, block_size: int = 32
) -> dict[str, FloatArray]:
    """What the stored weights of a graph in int4 or int8 stand for."""

    def twice(array: FloatArray, bits: int) -> FloatArray:
        done = quantize(array, bits, block_size)
        return dequantize(done.packed, done.scales, bits, array.shape[1])

    result = {}
    kept = {spec.name("positions")} | {spec.name("router", i) for i in range(spec.layers)}
    for name, array in arrays.items():
        if array.ndim == 1 or name in kept:
            result[name] = array
        elif name == spec.name("embed") and spec.hidden % block_size:
            # No whole number of blocks in a row: its table is in fp16.
            result[name] = array.astype(np.float16).astype(np.float32)
        else:
            result[name] = twice(array, 8 if name == spec.name("embed") and not spec.tied else bits)
    return result
