"""Translates products with quantised weights for OpenVINO, without a copy of the weights.

OpenVINO's own translation copies them, which takes as much memory again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import Output
from openvino import opset13 as op
from openvino.frontend import NodeContext

_X, _WEIGHT, _SCALES = range(3)
_TYPES = {4: ov.Type.u4, 8: ov.Type.u8}
# A constant is a view of memory that must be kept alive elsewhere.
_MIDDLES = {bits: np.array([1 << (bits - 1)], np.uint8) for bits in _TYPES}
_taking = threading.local()


@contextmanager
def taken() -> Iterator[list[NDArray[Any]]]:
    """Collect the memory of weights translated in this context, to be kept alive with the graph."""
    found: list[NDArray[Any]] = []
    _taking.weights = found
    try:
        yield found
    finally:
        del _taking.weights


def mat_mul_n_bits(node: NodeContext) -> list[Output]:
    """Return the product of rows with a matrix of codes with a zero point, scaled per block.

    Raises:
        ValueError: a form of the operator that the exporter does not write.

    """
    bits, block = node.get_attribute("bits"), node.get_attribute("block_size")
    rows, columns = node.get_attribute("N"), node.get_attribute("K")
    if bits not in _TYPES or columns % block or node.get_input_size() > _SCALES + 1:
        raise ValueError(f"weights of {bits} bits in blocks of {block}")
    kind, shape = _TYPES[bits], [rows, columns // block, block]
    stored = node.get_input(_WEIGHT).get_node().data
    _taking.weights.append(stored)
    codes = op.constant(ov.Tensor(stored, shape, kind), shared_memory=True)
    middle = op.constant(ov.Tensor(_MIDDLES[bits], [1], kind), shared_memory=True)
    scales = op.reshape(node.get_input(_SCALES), _sizes(*shape[:2], 1), special_zero=False)
    # In this form OpenVINO keeps the codes, and does not make a float matrix of them.
    around = op.subtract(op.convert(codes, "f32"), op.convert(middle, "f32"))
    matrix = op.reshape(op.multiply(around, scales), _sizes(rows, columns), special_zero=False)
    product = op.matmul(node.get_input(_X), matrix, transpose_a=False, transpose_b=True)
    return [product.output(0)]


def _sizes(*sizes: int) -> ov.Node:
    return op.constant(np.array(sizes, np.int64))


TRANSLATIONS = {"MatMulNBits": mat_mul_n_bits}
