"""Decoders in GGUF on llama.cpp: trees by sequences on shared cells."""

from __future__ import annotations

from pathlib import Path

from edgedec.placement.load import LoadOptions
from edgedec.runtimes.llamacpp.library import find_devices, version
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import LlamaSession

__all__ = ["LlamaModel", "LlamaSession", "devices", "load"]


def load(path: Path, options: LoadOptions) -> LlamaModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return LlamaModel.load(path, options)


def devices() -> list[str]:
    """What this build of llama.cpp can compute on; the first word is the device's name."""
    return [
        f"{device.name}: {device.description} (llama.cpp {version()})" for device in find_devices()
    ]
