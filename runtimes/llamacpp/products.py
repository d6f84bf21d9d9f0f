"""Products alone on one of llama.cpp's devices, for measuring: see ``hardware.speed``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgedec.hardware.speed import (
    INT4_SCALE,
    SIDE,
    CannotCompute,
    Run,
    check,
    float_matrix,
    int4_matrix,
    one_row,
    typical_seconds,
)
from edgedec.runtimes.llamacpp.backends import Backend, InitParams, ggml
from edgedec.runtimes.llamacpp.library import reorders_weights

_F32, _F16, _Q4_0 = 0, 1, 2  # ggml_type
_BLOCK = 32
# Kernels that want weights in an order of their own, which llama.cpp gives them while it loads.
_REORDERED = b"REPACK"
_SetThreads = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
_BuffersOf = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Weights:
    """A matrix as ggml stores it.

    Attributes:
        kind: ggml's type.
        stored: its bytes.
        values: what they stand for, [outputs, inputs].

    """

    kind: int
    stored: NDArray[np.generic]
    values: NDArray[np.float32]


def make_weights(name: str) -> Weights:
    """``f32``, ``f16`` or ``int4``, which is Q4_0."""
    if name == "int4":
        return _q4_0()
    values = float_matrix()
    if name == "f32":
        return Weights(_F32, values, values)
    halves = values.astype(np.float16)
    return Weights(_F16, halves, halves.astype(np.float32))


def _q4_0() -> Weights:
    """Blocks of a half-precision scale and 32 codes, of which a byte holds one of each half."""
    codes = int4_matrix()
    scale = np.float16(INT4_SCALE)
    halves = codes.reshape(-1, 2, _BLOCK // 2)
    layout = np.dtype([("scale", np.float16), ("codes", np.uint8, (_BLOCK // 2,))])
    stored = np.empty(len(halves), layout)
    stored["scale"] = scale
    stored["codes"] = halves[:, 0] | halves[:, 1] << 4
    return Weights(_Q4_0, stored, (codes.astype(np.float32) - 8) * np.float32(scale))


def time_products(backend: Backend, threads: int, weights: Weights, count: int, rows: int) -> Run:
    """Compute a chain; its rows stay on the device.

    Raises:
        CannotCompute: the device does not, or computes something else.

    """
    reasons = []
    # As llama.cpp loads weights: in an order of the device's own where it has one for them.
    for buffer_type in [*_reordered(backend), ggml().ggml_backend_dev_buffer_type(backend.pointer)]:
        try:
            return _time(backend, buffer_type, threads, weights, count, rows)
        except CannotCompute as error:
            reasons.append(error)
    raise reasons[-1]


def _time(
    backend: Backend, buffer_type: int, threads: int, weights: Weights, count: int, rows: int
) -> Run:
    library = ggml()
    with ExitStack() as stack:
        computing = stack.enter_context(_computing(backend, threads))
        matrices = stack.enter_context(_context(count))
        stored = [
            library.ggml_new_tensor_2d(matrices, weights.kind, SIDE, SIDE) for _ in range(count)
        ]
        stack.enter_context(_buffer(matrices, buffer_type))
        chain = stack.enter_context(_context(count + 1))
        first = library.ggml_new_tensor_2d(chain, _F32, SIDE, rows)
        steps = [first]
        for matrix in stored:
            steps.append(library.ggml_mul_mat(chain, matrix, steps[-1]))
        if not all(library.ggml_backend_dev_supports_op(backend.pointer, s) for s in steps[1:]):
            raise CannotCompute("it has no such product")
        graph = library.ggml_new_graph(chain)
        library.ggml_build_forward_expand(graph, steps[-1])
        plain = library.ggml_backend_dev_buffer_type(backend.pointer)
        stack.enter_context(_buffer(chain, plain))
        for matrix in stored:
            _set(matrix, weights.stored)
        row = one_row()
        _set(first, np.repeat(row, rows, axis=0))

        def run() -> None:
            if library.ggml_backend_graph_compute(computing, graph) != 0:
                raise CannotCompute("it fails while it computes")
            library.ggml_backend_synchronize(computing)

        seconds = typical_seconds(run)
        found = np.empty((rows, SIDE), np.float32)
        library.ggml_backend_tensor_get(steps[-1], found.ctypes.data, 0, found.nbytes)
    for _ in range(count):
        row = row @ weights.values.T
    check(found, np.repeat(row, rows, axis=0))
    return Run(seconds, weights.stored.nbytes * count, 2 * rows * SIDE * SIDE * count)


def _set(tensor: int, values: NDArray[np.generic]) -> None:
    ggml().ggml_backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)


@contextmanager
def _computing(backend: Backend, threads: int) -> Iterator[int]:
    library = ggml()
    computing = library.ggml_backend_dev_init(backend.pointer, None)
    if not computing:
        raise CannotCompute("it does not start")
    try:
        registry = library.ggml_backend_dev_backend_reg(backend.pointer)
        address = library.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
        if address:
            _SetThreads(address)(computing, threads)
        yield computing
    finally:
        library.ggml_backend_free(computing)


@contextmanager
def _context(tensors: int) -> Iterator[int]:
    """Where ggml notes tensors and a graph, without their data."""
    library = ggml()
    size = tensors * library.ggml_tensor_overhead() + library.ggml_graph_overhead()
    context = library.ggml_init(InitParams(size, None, True))
    if not context:
        raise CannotCompute("no memory")
    try:
        yield context
    finally:
        library.ggml_free(context)


@contextmanager
def _buffer(context: int, buffer_type: int) -> Iterator[None]:
    """The data of a context's tensors, on the device."""
    library = ggml()
    buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type)
    if not buffer:
        raise CannotCompute("no memory on the device")
    try:
        yield
    finally:
        library.ggml_backend_buffer_free(buffer)


def _reordered(backend: Backend) -> list[int]:
    if not reorders_weights():
        return []
    library = ggml()
    registry = library.ggml_backend_dev_backend_reg(backend.pointer)
    address = library.ggml_backend_reg_get_proc_address(
        registry, b"ggml_backend_dev_get_extra_bufts"
    )
    found: list[int] = []
    if not address:
        return found
    types = _BuffersOf(address)(backend.pointer)
    index = 0
    while types and types[index]:
        found.append(int(types[index]))
        index += 1
    return [kind for kind in found if _REORDERED in library.ggml_backend_buft_name(kind)]
