"""Measures a device's speed by llama.cpp's own matrix products."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgedec.errors import RuntimeUnavailable
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
from edgedec.runtimes.llamacpp.backends import Backend, InitParams, find_backends, ggml
from edgedec.runtimes.llamacpp.library import reorders_weights

_KINDS = {"f32": 0, "f16": 1, "int4": 2}  # ggml_type; int4 is Q4_0
# Kernels with their own order of weights, into which llama.cpp converts them at load.
_REORDERED = b"REPACK"
_SetThreads = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
_BuffersOf = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    backends = find_backends()
    chosen = [b for b in backends if b.name.lower() == device.name.lower()]
    if not chosen:
        names = ", ".join(backend.name for backend in backends)
        raise RuntimeUnavailable(f"no device {device.name!r} in this llama.cpp: it has {names}")
    (backend,) = chosen
    if not backend.pointer:
        raise RuntimeUnavailable(
            f"{device.name}: this llama.cpp does not expose its matrix products"
        )
    return take_speed(device, "llama.cpp", functools.partial(ready, backend, threads))


@contextmanager
def ready(backend: Backend, threads: int, weights: str, count: int, rows: int) -> Iterator[Ready]:
    """See ``edgedec.hardware.speed.Prepare``; the rows stay on the device."""
    reasons = []
    # As llama.cpp loads weights: in the device's own order, if it has one for them.
    for buffers in [*_reordered(backend), ggml().ggml_backend_dev_buffer_type(backend.pointer)]:
        with ExitStack() as stack:
            try:
                chain = _Chain(backend, threads, rows, stack)
                size = chain.put(weights, buffers, count)
                chain.run()
            except CannotCompute as error:
                reasons.append(error)
                continue
            yield Ready(chain.run, chain.result, size)
            return
    raise reasons[-1]


class _Chain:
    """Matrices and rows on a device, until ``stack`` is closed."""

    def __init__(self, backend: Backend, threads: int, rows: int, stack: ExitStack) -> None:
        self._backend, self._rows, self._stack = backend, rows, stack
        started = ggml().ggml_backend_dev_init(backend.pointer, None)
        self._device = self._own(started, ggml().ggml_backend_free, "it does not start")
        set_threads = _function(backend, b"ggml_backend_set_n_threads")
        if set_threads:
            _SetThreads(set_threads)(self._device, threads)

    def put(self, weights: str, buffers: int, count: int) -> int:
        """Put the matrices into such buffers; return their bytes."""
        library, kind = ggml(), _KINDS[weights]
        context = self._context(count)
        matrices = [library.ggml_new_tensor_2d(context, kind, SIDE, SIDE) for _ in range(count)]
        self._allocate(context, buffers)
        context = self._context(count + 1)
        steps = [library.ggml_new_tensor_2d(context, _KINDS["f32"], SIDE, self._rows)]
        for one in matrices:
            steps.append(library.ggml_mul_mat(context, one, steps[-1]))
            if not library.ggml_backend_dev_supports_op(self._backend.pointer, steps[-1]):
                raise CannotCompute("it has no such product")
        self._last = steps[-1]
        self._graph = library.ggml_new_graph(context)
        library.ggml_build_forward_expand(self._graph, self._last)
        self._allocate(context, library.ggml_backend_dev_buffer_type(self._backend.pointer))
        stored, row = _stored(weights), np.repeat(one_row(), self._rows, axis=0)
        for tensor, values in [*((one, stored) for one in matrices), (steps[0], row)]:
            library.ggml_backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)
        return stored.nbytes * count

    def run(self) -> None:
        if ggml().ggml_backend_graph_compute(self._device, self._graph) != 0:
            raise CannotCompute("it fails while it computes")
        ggml().ggml_backend_synchronize(self._device)

    def result(self) -> NDArray[np.float32]:
        found = np.empty((self._rows, SIDE), np.float32)
        ggml().ggml_backend_tensor_get(self._last, found.ctypes.data, 0, found.nbytes)
        return found

    def _own(self, pointer: int, free: Callable[[int], None], reason: str) -> int:
        if not pointer:
            raise CannotCompute(reason)
        self._stack.callback(free, pointer)
        return pointer

    def _context(self, tensors: int) -> int:
        """Create a ggml context for tensors and a graph, without their data."""
        size = tensors * ggml().ggml_tensor_overhead() + ggml().ggml_graph_overhead()
        made = ggml().ggml_init(InitParams(size, None, True))
        return self._own(made, ggml().ggml_free, "no memory")

    def _allocate(self, context: int, buffers: int) -> None:
        data = ggml().ggml_backend_alloc_ctx_tensors_from_buft(context, buffers)
        self._own(data, ggml().ggml_backend_buffer_free, "no memory on the device")


def _stored(weights: str) -> NDArray[Any]:
    """Return a matrix as ggml stores it."""
    if weights != "int4":
        return matrix().astype({"f32": np.float32, "f16": np.float16}[weights])
    # Blocks of a half-precision scale and 32 codes; each byte holds one code of each half.
    halves = codes().reshape(-1, 2, BLOCK // 2)
    layout = np.dtype([("scale", np.float16), ("codes", np.uint8, (BLOCK // 2,))])
    stored = np.empty(len(halves), layout)
    stored["scale"] = SCALE
    stored["codes"] = halves[:, 0] | halves[:, 1] << 4
    return stored


def _reordered(backend: Backend) -> list[int]:
    """Return the buffer types that hold weights in the device's own order."""
    buffers_of = _function(backend, b"ggml_backend_dev_get_extra_bufts")
    if not buffers_of or not reorders_weights():
        return []
    types = _BuffersOf(buffers_of)(backend.pointer)
    found: list[int] = []
    while types and types[len(found)]:
        found.append(int(types[len(found)]))
    return [kind for kind in found if _REORDERED in ggml().ggml_backend_buft_name(kind)]


def _function(backend: Backend, name: bytes) -> int | None:
    """Return the address of a function that only this kind of backend has."""
    library = ggml()
    registry = library.ggml_backend_dev_backend_reg(backend.pointer)
    address: int | None = library.ggml_backend_reg_get_proc_address(registry, name)
    return address
