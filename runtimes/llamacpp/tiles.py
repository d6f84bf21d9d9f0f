"""Prevents llama.cpp from using AMX kernels, which crash in builds by some compilers.

gcc 12, for instance, assumes that the intrinsic that loads a tile configuration reads 8 of its 64
bytes, and drops the stores of the others. Builds do not record their compiler, so AMX is never used
where it was compiled in.

A process asks Linux for AMX's registers before it uses them, and Linux refuses while one of its
threads has an alternate signal stack too small to save them. llama.cpp asks once, then stores
weights in the order of its other kernels, as on a processor without AMX.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

# All states without AMX take at most 4 kB; AMX's tiles alone take 8 kB and 64 bytes.
_STACK_BYTES = 8192
_DISABLED = 2  # SS_DISABLE
_ARCH_PRCTL, _GRANTED, _TILES = 158, 0x1022, 1 << 18  # ARCH_GET_XCOMP_PERM, XTILEDATA
_PROCESSOR = 0  # GGML_BACKEND_DEVICE_TYPE_CPU


class _Stack(ctypes.Structure):
    """stack_t."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("bytes", ctypes.c_size_t),
    )


def unused(llama_cpp: Any) -> bool:
    """Make llama.cpp decide against AMX; return whether it did, or was built without AMX.

    Args:
        llama_cpp: the library's Python module, with the processor's backend loaded.

    """
    if b"AMX_INT8 = 1" not in llama_cpp.llama_print_system_info():
        return True
    with withheld():
        asked = _choose_orders()
    return asked and not granted()


def _choose_orders() -> bool:
    """Make llama.cpp choose the memory layouts of weights, once for the process."""
    from llama_cpp import _ggml

    library = _ggml.libggml
    try:
        device_of, registry_of = (
            library.ggml_backend_dev_by_type,
            library.ggml_backend_dev_backend_reg,
        )
        function_of = library.ggml_backend_reg_get_proc_address
    except AttributeError:  # in another library, as on Windows
        return False
    pointer = ctypes.c_void_p
    device_of.restype, device_of.argtypes = pointer, [ctypes.c_int]
    registry_of.restype, registry_of.argtypes = pointer, [pointer]
    function_of.restype, function_of.argtypes = pointer, [pointer, ctypes.c_char_p]
    device = device_of(_PROCESSOR)
    address = device and function_of(registry_of(device), b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return False
    ctypes.CFUNCTYPE(pointer, pointer)(address)(device)
    return True


@contextlib.contextmanager
def withheld() -> Iterator[None]:
    """Within this context Linux refuses AMX, unless the process already has it.

    llama.cpp's message about the refusal on standard error is dropped.
    """
    if not _on_linux_x86():
        yield
        return
    library = ctypes.CDLL(None)
    memory = ctypes.create_string_buffer(_STACK_BYTES)
    small = _Stack(ctypes.addressof(memory), 0, _STACK_BYTES)
    former = _Stack(None, _DISABLED, 0)
    with _silent():
        placed = library.sigaltstack(ctypes.byref(small), ctypes.byref(former)) == 0
        try:
            yield
        finally:
            if placed:
                library.sigaltstack(ctypes.byref(former), None)


def granted() -> bool:
    """Return whether this process may use AMX; True where that cannot be asked."""
    if not _on_linux_x86():
        return True
    features = ctypes.c_uint64()
    failed = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GRANTED, ctypes.byref(features))
    return not failed and bool(features.value & _TILES)


def _on_linux_x86() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    try:
        kept = os.dup(2)
    except OSError:  # closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
