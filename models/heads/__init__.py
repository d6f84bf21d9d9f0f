"""Heads that draft from a target's residual streams: one file a kind, found by its configuration.

A file has ``matches(config)``, ``spec(config, target)``, which returns a ``HeadSpec``, and
``neighbours(spec, layers)``, the wirings with which it may have been confused. ``INSIDE`` says that
it is a part of the target's checkpoint, whose configuration it is found by.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import HeadSpec, Wiring


class _Kind(Protocol):
    """The contents of a kind's module."""

    INSIDE: bool

    def matches(self, config: Mapping[str, Any]) -> bool: ...

    def spec(self, config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec: ...

    def neighbours(self, spec: HeadSpec, layers: int) -> Iterator[Wiring]: ...


def head_for(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the head that a config.json describes, for this target.

    Raises:
        UnsupportedArchitecture: no file knows its kind, or it needs what edgedec does not compute.
        CheckpointError: a field is missing, invalid, or does not fit the target.

    """
    kind = _found(config, inside=False)
    if kind is not None:
        return kind.spec(config, target)
    shown = config.get("architectures") or config.get("model_type")
    known = ", ".join(name for name in kinds() if not _kind(name).INSIDE)
    raise UnsupportedArchitecture(
        f"config.json: {shown!r} is no head that edgedec knows, only {known}: give a small model"
        " with --draft"
    )


def head_inside(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec | None:
    """Return the head that the target's own config.json says its checkpoint has, if it does.

    Raises:
        CheckpointError: a field of it is invalid.

    """
    kind = _found(config, inside=True)
    return None if kind is None else kind.spec(config, target)


def is_head(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json describes a head in a folder of its own."""
    return _found(config, inside=False) is not None


def neighbours(spec: HeadSpec, layers: int) -> Iterator[Wiring]:
    """Yield the wirings that differ from a head's in one thing, for a target of ``layers``."""
    return _kind(spec.kind).neighbours(spec, layers)


def _found(config: Mapping[str, Any], *, inside: bool) -> _Kind | None:
    of_place = (kind for kind in map(_kind, kinds()) if inside == kind.INSIDE)
    return next((kind for kind in of_place if kind.matches(config)), None)


def _kind(name: str) -> _Kind:
    return cast(_Kind, importlib.import_module(f"{__name__}.{name}"))


def kinds() -> list[str]:
    """Return the kinds of heads: the modules of this package that can tell one."""
    shared = ("head", "mtp")
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in shared)


__all__ = ["HeadSpec", "Wiring", "head_for", "head_inside", "is_head", "kinds", "neighbours"]
