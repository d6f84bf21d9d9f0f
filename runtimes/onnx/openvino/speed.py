"""Measures the processor's speed through OpenVINO."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as op

from edgedec.hardware.device import Device, Speed
from edgedec.hardware.speed import (
    BLOCK,
    SCALE,
    SIDE,
    CannotCompute,
    Ready,
    codes,
    matrix,
    one_row,
    take_speed,
)
from edgedec.runtimes.onnx.openvino.opening import DEVICE, properties, reason

_ZERO = 8  # of four-bit codes


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return take_speed(device, "OpenVINO", functools.partial(_ready, threads))


@contextmanager
def _ready(threads: int, weights: str, count: int, rows: int) -> Iterator[Ready]:
    """See ``edgedec.hardware.speed.Prepare``."""
    given = op.parameter([rows, SIDE], np.float32)
    last: ov.Node = given
    held = [_packed() if weights == "int4" else matrix().copy() for _ in range(count)]
    for stored in held:
        factor = _int4(stored) if weights == "int4" else op.constant(stored)
        last = op.matmul(last, factor, transpose_a=False, transpose_b=True)
    try:
        compiled = ov.Core().compile_model(
            ov.Model([last], [given]), DEVICE, properties(threads, BLOCK)
        )
        request = compiled.create_infer_request()
        request.set_input_tensor(ov.Tensor(np.repeat(one_row(), rows, axis=0)))
        request.infer()
    except Exception as error:  # OpenVINO's own errors share no public base
        raise CannotCompute(reason(error)) from error
    bits = 4 + 32 / BLOCK if weights == "int4" else 32
    size = int(count * SIDE * SIDE * bits / 8)
    yield Ready(request.infer, lambda: request.get_output_tensor().data, size)
    # OpenVINO's constants view this memory.
    held.clear()


def _packed() -> NDArray[np.uint8]:
    """Return four-bit codes around zero, two in a byte."""
    around_zero = (codes() - _ZERO) & 0xF
    packed: NDArray[np.uint8] = (around_zero[:, ::2] | around_zero[:, 1::2] << 4).astype(np.uint8)
    return packed


def _int4(packed: NDArray[np.uint8]) -> ov.Node:
    """Return a matrix of four-bit codes, each block with a scale, as OpenVINO recognises it."""
    blocks = (SIDE, SIDE // BLOCK, BLOCK)
    stored = op.constant(ov.Tensor(packed, blocks, ov.Type.i4))
    scales = op.constant(np.full((*blocks[:2], 1), SCALE, np.float32))
    values = op.multiply(op.convert(stored, "f32"), scales)
    return op.reshape(values, op.constant(np.array([SIDE, SIDE])), special_zero=False)
