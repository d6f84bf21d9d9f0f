"""What a device reaches, measured through ONNX Runtime."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime as ort

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device, Speed
from edgedec.hardware.speed import CannotCompute, Run, check, take_speed, typical_seconds
from edgedec.runtimes._ort.devices import CPU, Offer, choose
from edgedec.runtimes._ort.opening import SessionFailed, one_line, open_session, session_options
from edgedec.runtimes._ort.products import Chain, float_chain, int4_chain


def measure(device: Device, threads: int) -> Speed:
    """See ``edgedec.runtimes.registry.Adapter``."""
    (offer,) = choose(device.name, [device.provider] if device.provider else [])
    try:
        return take_speed(device, functools.partial(_timed, offer, threads))
    except CannotCompute as error:
        raise RuntimeUnavailable(f"{offer.label} cannot compute a product: {error}") from error


def _timed(offer: Offer, threads: int, weights: str, count: int, rows: int) -> Run:
    """See ``hardware.speed.Timed``."""
    if weights != "int4":
        dtype = {"f32": np.float32, "f16": np.float16}[weights]
        return _run(offer, threads, float_chain(count, rows, dtype))
    if offer.device.kind != "cpu":
        try:
            return _run(offer, threads, int4_chain(count, rows, np.float16))
        except CannotCompute:
            pass  # activations of single precision may do
    return _run(offer, threads, int4_chain(count, rows))


def _run(offer: Offer, threads: int, chain: Chain) -> Run:
    options = session_options(threads)
    if offer.provider != CPU:
        # Else ONNX Runtime would compute on the processor what the device cannot.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    values = [ort.OrtValue.ortvalue_from_numpy(weight) for weight in chain.weights.values()]
    options.add_external_initializers(list(chain.weights), values)
    try:
        inference = open_session(chain.model, options, [offer], threads)
    except SessionFailed as error:
        raise CannotCompute(str(error)) from error
    try:
        seconds = typical_seconds(lambda: inference.run(None, chain.feeds))
        (found,) = inference.run(None, chain.feeds)
    except Exception as error:  # ONNX Runtime's own errors share no public base
        raise CannotCompute(one_line(error)) from error
    check(found, chain.expected)
    return Run(seconds, chain.weight_bytes, chain.operations)
