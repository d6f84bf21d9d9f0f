"""Tries which bundles a device takes: a tiny decoder in each form of ONNX, loaded on it.

A runtime compares a provider's numbers with the processor's when it loads a model, so that loading
shows how a real bundle would fare.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child, installation
from edgedec._support.fields import from_json, to_json
from edgedec._support.parts import part
from edgedec._support.sandbox import Limits, Refused, Stopped, ask_once
from edgedec.errors import EdgedecError, ProfileError, RuntimeUnavailable
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.hardware.device import Device
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for
from edgedec.records.load import LoadOptions
from edgedec.records.place import CPU
from edgedec.runtimes import registry

# Compiling kernels takes long the first time; a driver that hangs delays the other devices.
_PATIENCE_S = 90.0
_CHILD = "edgedec.doctor.forms"
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


class RandomTensors:
    """Tensors drawn from a seed by their names, with a spread that makes every layer matter."""

    def __init__(self, spec: DecoderSpec) -> None:
        self._shapes = spec.tensors()
        self._embed = spec.name("embed")

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        shape = self._shapes[name]
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        values = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            values = np.float32(1) + values / np.float32(4)
        else:
            values *= 0.5 if name == self._embed else 1.5 / np.sqrt(shape[1], dtype=np.float32)
        found: FloatArray = values[start:stop]
        return found


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
            _WRITERS[device.runtime](spec, RandomTensors(spec), Path(name))
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


def main(task: Mapping[str, Any]) -> Any:
    """Load a tiny decoder on ``device``, in the child process; return why that fails, or None."""
    return load_probe(from_json(Device, task["device"], "device", ProfileError))


if __name__ == "__main__":
    _sandbox_child.serve(main)
