"""The memory of a cache is given back, and nothing that looks at it hides another error."""

import mmap

import numpy as np
import pytest

from edgedec.runtimes._ort import memory
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx_hub.cache import Group, PastCache

SHAPE = (4, 2, 8, 4)


def traced() -> PastCache:
    group = Group(("key", "value"), heads=2, width=4)
    return PastCache([group], 8, np.dtype(np.float32))


@pytest.mark.parametrize("make", [lambda: KvCache(SHAPE, np.float32), traced])
def test_an_interrupt_comes_through_where_arrays_are_still_held(make) -> None:
    """As when Ctrl-C comes while a model is loaded: its traceback keeps the frame's arrays."""

    def interrupted() -> None:
        cache = make()
        try:
            held = cache.rows[0]
            assert held.ndim
            raise KeyboardInterrupt
        finally:
            cache.close()

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_memory_is_freed_when_the_last_array_goes() -> None:
    reserved = memory.reserve(1 << 16)
    assert reserved is not None
    held = np.frombuffer(reserved, np.uint8)
    memory.release(reserved)
    assert not reserved.closed
    held[:] = 1  # still there
    del held
    memory.release(reserved)
    assert reserved.closed


def test_closing_it_outright_would_hide_the_interrupt() -> None:
    reserved = mmap.mmap(-1, 1 << 16)
    held = np.frombuffer(reserved, np.uint8)
    with pytest.raises(BufferError):
        reserved.close()
    del held
