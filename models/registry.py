"""Finds a `model_type`'s file, whose name is that of the architecture."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from edgedec import models
from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.config import check
from edgedec.models.decoder import DecoderSpec


def architectures() -> list[str]:
    """Return the supported model types: modules of this package with a ``spec``."""
    return [name for name in _modules() if _reader(name) is not None]


def llamacpp_names(model_type: str) -> tuple[str, ...]:
    """Return llama.cpp's architectures that may compute a model type, best first."""
    if model_type not in _modules():
        return ()
    module = importlib.import_module(f"{models.__name__}.{model_type}")
    return tuple(getattr(module, "GGUF", ()))


def spec_for(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that a config.json describes.

    Raises:
        UnsupportedArchitecture: no file for its ``model_type``.
        CheckpointError: a field is missing or invalid.

    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise CheckpointError("config.json has no model_type")
    # Only existing files of this package are imported, whatever a model_type says.
    reader = _reader(kind) if kind in _modules() else None
    if reader is None:
        known = ", ".join(architectures())
        raise UnsupportedArchitecture(f"model_type {kind!r} has no spec; known are {known}")
    found = reader(config)
    check(found)
    return found


def _modules() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(models.__path__) if not m.ispkg)


def _reader(name: str) -> Callable[[Mapping[str, Any]], DecoderSpec] | None:
    try:
        module = importlib.import_module(f"{models.__name__}.{name}")
    except ModuleNotFoundError:  # a tool of this package that needs an extra
        return None
    return getattr(module, "spec", None)
