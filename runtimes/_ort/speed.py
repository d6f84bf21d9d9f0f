"""What a device reaches, measured through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime as ort

from edgedec.errors import RuntimeUnavailable
from edgedec.placement.device import Device, Speed
from edgedec.placement.speed import affordable, peak, typical_seconds
from edgedec.runtimes._ort.devices import CPU, Offer, choose
from edgedec.runtimes._ort.opening import SessionFailed, open_session, session_options
from edgedec.runtimes._ort.products import SIDE, Chain, float_chain, int4_chain

# How far a row may be from numpy's, as a share of its length: int8 activations and bfloat16
# products err by a few hundredths, another formula by all of it.
_TOLERANCE = 0.1
Make = Callable[[int, int], Chain]


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    (offer,) = choose(device.name, [device.provider] if device.provider else [])
    # Cards and neural processors are made for halves, and some know nothing else.
    types = ["f32"] if device.kind == "cpu" else ["f16", "f32"]
    failures = []
    for name in types:
        dtype = {"f32": np.float32, "f16": np.float16}[name]

        def plain(count: int, rows: int, dtype: type = dtype) -> Chain:
            return float_chain(count, rows, dtype)

        def int4(count: int, rows: int, dtype: type = dtype) -> Chain:
            return int4_chain(count, rows, dtype)

        try:
            rate, flops = _speed(plain, SIDE * SIDE * np.dtype(dtype).itemsize, offer, threads)
        except SessionFailed as error:
            failures.append(str(error))
            continue
        try:
            int4_rate, int4_flops = _speed(int4, SIDE * SIDE * 9 // 16, offer, threads)
        except SessionFailed:
            return Speed(rate, flops, name)
        return Speed(rate, flops, name, int4_rate, int4_flops)
    raise RuntimeUnavailable(f"{offer.label} cannot compute a product: {failures[0]}")


def _speed(make: Make, each: int, offer: Offer, threads: int) -> tuple[float, float]:
    """Bytes a second of one row, and operations a second of many."""
    # The weights themselves, and once more as the kernels want them.
    count = affordable(2 * each, offer.device.memory_free)
    seconds, chain = _timed(make(count, 1), offer, threads)

    def rate(rows: int) -> tuple[float, float]:
        taken, products = _timed(make(1, rows), offer, threads)
        return taken, products.operations

    return chain.weight_bytes / seconds, peak(rate)


def _timed(chain: Chain, offer: Offer, threads: int) -> tuple[float, Chain]:
    """Seconds of a run.

    Raises:
        SessionFailed: it does not run there, or its numbers are wrong.

    """
    options = session_options(threads)
    if offer.provider != CPU:
        # Else ONNX Runtime would compute on the processor what the device cannot.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    values = [ort.OrtValue.ortvalue_from_numpy(weight) for weight in chain.weights.values()]
    options.add_external_initializers(list(chain.weights), values)
    inference = open_session(chain.model, options, [offer], threads)
    try:
        seconds = typical_seconds(lambda: inference.run(None, chain.feeds))
        (found,) = inference.run(None, chain.feeds)
    except Exception as error:  # ONNX Runtime's own errors share no public base
        raise SessionFailed((str(error).strip() or type(error).__name__).splitlines()[0]) from error
    wrong = np.linalg.norm(found.astype(np.float32) - chain.expected)
    if not wrong <= _TOLERANCE * np.linalg.norm(chain.expected):
        raise SessionFailed("its numbers are wrong")
    return seconds, chain
