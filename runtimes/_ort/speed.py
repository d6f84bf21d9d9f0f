"""Measures a device's speed through ONNX Runtime.

The graphs are written here, without the onnx package: a message of the protobuf wire format is a
sequence of fields, whose numbers are from onnx.proto3. To transfer little between host and device,
the rows are generated on the device, as ``column x``, and reduced to one there:
``y = row (column x) W1 W2 ... Wn``. All shapes are fixed, since neural processors require that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnxruntime as ort
from numpy.typing import DTypeLike, NDArray

from edgedec.bundle.protobuf import message
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
from edgedec.runtimes._ort.devices import CPU, OrtDevice, choose
from edgedec.runtimes._ort.opening import SessionFailed, one_line, open_session, session_options

_IR_VERSION, _OPSET = 8, 17
_MICROSOFT = "com.microsoft"
_KINDS = {"float32": 1, "uint8": 2, "float16": 10}  # TensorProto.DataType
_INT = 2  # AttributeProto.AttributeType
_EXTERNAL = 1  # TensorProto.DataLocation
_INT4 = {"K": SIDE, "N": SIDE, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}

Array = NDArray[np.generic]


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    (offer,) = choose(device.name, [device.provider] if device.provider else [])
    return take_speed(device, offer.provider, functools.partial(_ready, offer, threads))


@contextmanager
def _ready(offer: OrtDevice, threads: int, weights: str, count: int, rows: int) -> Iterator[Ready]:
    """See ``edgedec.hardware.speed.Prepare``."""
    dtypes: list[DTypeLike] = [np.float16 if weights == "f16" else np.float32]
    if weights == "int4" and offer.device.kind != "cpu":
        dtypes.insert(0, np.float16)  # single-precision activations may work as well
    reasons = []
    for dtype in dtypes:
        try:
            found = _opened(offer, threads, _matrices(weights, count, dtype), rows)
        except CannotCompute as error:
            reasons.append(error)
        else:
            yield found
            return
    raise reasons[0]


def _opened(offer: OrtDevice, threads: int, weights: dict[str, Array], rows: int) -> Ready:
    """Open a session and run it once."""
    options = session_options(threads)
    if offer.provider != CPU:
        # Otherwise ONNX Runtime would run operators that the device lacks on the processor.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    values = [ort.OrtValue.ortvalue_from_numpy(weight) for weight in weights.values()]
    options.add_external_initializers(list(weights), values)
    dtype = next(reversed(weights.values())).dtype  # of scales, or of the weights themselves
    signs = np.where(np.arange(rows) % 2, -1.0, 1.0)
    fed = {"x": one_row(), "column": signs[:, None], "row": signs[None] / rows}
    feeds: dict[str, Array] = {name: array.astype(dtype) for name, array in fed.items()}
    try:
        inference = open_session(graph(weights, feeds), options, [offer], threads)
    except SessionFailed as error:
        raise CannotCompute(str(error)) from error

    found: list[Array] = []

    def run() -> None:
        try:
            found[:] = inference.run(None, feeds)
        except Exception as error:  # ONNX Runtime's own errors share no public base
            raise CannotCompute(one_line(error)) from error

    run()
    return Ready(run, lambda: found[0], sum(weight.nbytes for weight in weights.values()))


def _matrices(weights: str, count: int, dtype: DTypeLike) -> dict[str, Array]:
    """Return initializers by name, each with its own memory, which caches must not share."""
    if weights != "int4":
        return {f"w{n}": matrix().T.astype(dtype, order="C") for n in range(count)}
    packed = (codes()[:, ::2] | codes()[:, 1::2] << 4).reshape(SIDE, SIDE // BLOCK, BLOCK // 2)
    scales = np.full(SIDE * SIDE // BLOCK, SCALE, dtype)
    stored: dict[str, Array] = {f"w{n}": packed.copy() for n in range(count)}
    return stored | {f"s{n}": scales.copy() for n in range(count)}


# -- the graph ----------------------------------------------------------------------------------


def graph(weights: dict[str, Array], feeds: dict[str, Array]) -> bytes:
    """Return a serialised ModelProto; the weights' data are passed separately."""
    op, parts, more = "MatMul", "w", b""
    if "s0" in weights:
        op, parts = "MatMulNBits", "ws"
        attributes = (message((1, name), (3, n), (20, _INT)) for name, n in _INT4.items())
        more = message((7, _MICROSOFT), *((5, one) for one in attributes))
    count = len(weights) // len(parts)
    nodes = [message((1, "column"), (1, "x"), (2, "h0"), (4, "MatMul"))]
    for n in range(count):
        inputs = (f"h{n}", *(f"{part}{n}" for part in parts))
        node = message(*((1, name) for name in inputs), (2, f"h{n + 1}"), (4, op))
        nodes.append(node + more)  # a message is its fields, one after the other
    nodes.append(message((1, "row"), (1, f"h{count}"), (2, "y"), (4, "MatMul")))
    graph = message(
        *((1, node) for node in nodes),
        (2, "products"),
        *((5, _tensor(name, values)) for name, values in weights.items()),
        *((11, _value(name, values)) for name, values in feeds.items()),
        (12, _value("y", feeds["x"])),
    )
    opsets = (message((1, ""), (2, _OPSET)), message((1, _MICROSOFT), (2, 1)))
    return message((1, _IR_VERSION), (7, graph), *((8, opset) for opset in opsets))


def _tensor(name: str, values: Array) -> bytes:
    """Return a TensorProto whose data are external."""
    location = message((1, "location"), (2, "memory"))
    dims = ((1, size) for size in values.shape)
    return message(*dims, (2, _KINDS[values.dtype.name]), (8, name), (13, location),
                    (14, _EXTERNAL))  # fmt: skip


def _value(name: str, values: Array) -> bytes:
    """Return a ValueInfoProto of the same type and shape."""
    shape = message(*((1, message((1, size))) for size in values.shape))
    tensor = message((1, _KINDS[values.dtype.name]), (2, shape))
    return message((1, name), (2, message((1, tensor))))
