"""Decoders in GGUF on llama.cpp: trees by sequences on shared cells."""

from __future__ import annotations

from pathlib import Path

from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.backends import find_devices as devices
from edgedec.runtimes.llamacpp.backends import load_plugins
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import LlamaSession
from edgedec.runtimes.llamacpp.speed import measure

__all__ = ["LlamaModel", "LlamaSession", "devices", "load", "measure", "problems"]


def load(path: Path, options: LoadOptions) -> LlamaModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return LlamaModel.load(path, options)


def problems() -> list[str]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    failed = load_plugins()
    return [failed] if failed else []
