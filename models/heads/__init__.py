"""Heads that draft from a target's residual streams: one file a kind, found by its configuration.

A file has ``matches(config)`` and ``spec(config, target)``, which returns a ``HeadSpec``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol, cast

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import HeadSpec


class _Kind(Protocol):
    """The contents of a kind's module."""

    def matches(self, config: Mapping[str, Any]) -> bool: ...

    def spec(self, config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec: ...


def head_for(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the head that a config.json describes, for this target.

    Raises:
        UnsupportedArchitecture: no file knows its kind, or it needs what edgedec does not compute.
        CheckpointError: a field is missing, invalid, or does not fit the target.

    """
    for name in kinds():
        kind = _kind(name)
        if kind.matches(config):
            return kind.spec(config, target)
    shown = config.get("architectures") or config.get("model_type")
    raise UnsupportedArchitecture(
        f"config.json: {shown!r} is no head that edgedec knows, only {', '.join(kinds())}: give a"
        " small model with --draft"
    )


def is_head(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json describes a head of a known kind."""
    return any(_kind(name).matches(config) for name in kinds())


def _kind(name: str) -> _Kind:
    return cast(_Kind, importlib.import_module(f"{__name__}.{name}"))


def kinds() -> list[str]:
    """Return the kinds of heads: the modules of this package but the description of a head."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "head")


__all__ = ["HeadSpec", "head_for", "is_head", "kinds"]
