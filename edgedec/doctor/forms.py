"""Tries which bundles a device takes: a tiny decoder in each form of ONNX, loaded on it.

A runtime compares a provider's numbers with the processor's when it loads a model, so that loading
shows how a real bundle would fare.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import installation
from edgedec._support.fields import to_json
from edgedec._support.parts import part
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, RuntimeUnavailable
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.hardware.device import Device
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.records.place import CPU
from edgedec.runtimes import registry

# Compiling kernels takes long the first time; a driver that hangs delays the other devices.
_PATIENCE_S = 90.0
_CHILD = "edgedec.doctor._forms_child"
_CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


class _Random:
    """Random weights of a decoder."""

    def __init__(self, spec: DecoderSpec) -> None:
        rng = np.random.default_rng(0)
        self._values: dict[str, FloatArray] = {
            name: rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
            for name, shape in spec.tensors().items()
        }

    def shape(self, name: str) -> tuple[int, ...]:
        found: tuple[int, ...] = self._values[name].shape
        return found

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        return self._values[name][start:stop]


def _dynamic(spec: DecoderSpec, tensors: TensorReader, folder: Path) -> None:
    from edgedec.export.onnx import GraphOptions, write_model

    write_model(spec, tensors, folder, GraphOptions("probe", weights="fp32"))


def _static(spec: DecoderSpec, tensors: TensorReader, folder: Path) -> None:
    static = part("edgedec.export.onnx_static", "a graph of static shape")
    options = static.StaticOptions("probe", weights="fp32", rows=(1, 8))
    static.write_graphs(spec, tensors, folder, options)


_WRITERS: Mapping[str, Callable[[DecoderSpec, TensorReader, Path], None]] = {
    "onnx": _dynamic,
    "onnx-static": _static,
}


def refusal(device: Device) -> str | None:
    """Return why a device takes no bundle of its runtime, in one line; None if it takes them.

    Only forms of ONNX are tried, and only on other devices than the processor, where their kernels
    are trusted.
    """
    if device.runtime not in _WRITERS or device.name == CPU:
        return None
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_PATIENCE_S)
    try:
        answer = ask_once(_CHILD, {"device": to_json(device)}, limits, environment={})
    except (Stopped, Refused) as error:
        return f"{device.runtime} {device.name}: {error}"
    return None if answer is None else f"{device.runtime} {device.name}: {answer}"


def load_probe(device: Device) -> str | None:
    """Load a tiny decoder on a device; return why that fails, or None."""
    spec = spec_for(dict(_CONFIG))
    with tempfile.TemporaryDirectory(prefix="edgedec-probe-") as name:
        try:
            _WRITERS[device.runtime](spec, _Random(spec), Path(name))
        except ModuleNotFoundError as error:
            return installation.needs("not tried: this", "export", error.name or "onnx")
        try:
            options = LoadOptions(threads=1, device=device.name)
            registry.adapter(device.runtime).load(Path(name), options).close()
        except RuntimeUnavailable as error:
            where, _, reason = str(error).partition(": ")
            return reason if where.startswith(name) else str(error)
        except EdgedecError as error:
            return str(error)
    return None
