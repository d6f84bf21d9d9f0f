"""Drafters, one file each, found by name; copy ``lookup.py`` to write your own.

A drafter's file has a function ``build(parts: DrafterParts) -> Drafter``; nothing else
needs to know of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from edgedec.decoding.drafting.base import Drafter, DrafterParts
from edgedec.errors import InputError


def names() -> list[str]:
    """The drafters there are: the files of this folder that are not helpers."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name != "base" and not name.startswith("_"))


def needs_model(name: str) -> bool:
    """Whether a drafter drafts with a model of its own; False for unknown names."""
    return name in names() and bool(getattr(_module(name), "NEEDS_MODEL", False))


def branches(name: str) -> bool:
    """Whether a drafter proposes branching trees where it may; False for unknown names."""
    return name in names() and bool(getattr(_module(name), "BRANCHES", False))


def needs_branches(name: str) -> bool:
    """Whether a drafter drafts nothing but branching trees; False for unknown names."""
    return name in names() and bool(getattr(_module(name), "NEEDS_BRANCHES", False))


def create(name: str, parts: DrafterParts) -> Drafter:
    """A drafter by name; its file is imported now, not before.

    Args:
        name: one of ``names()``.
        parts: what it is built from; the draft's session is the drafter's own from now on.

    Raises:
        InputError: no such drafter, or it needs what was not given.

    """
    if name not in names():
        raise InputError(f"no drafter {name!r}: expected one of {', '.join(names())}")
    drafter: Drafter = _module(name).build(parts)
    return drafter


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


__all__ = [
    "Drafter",
    "DrafterParts",
    "branches",
    "create",
    "names",
    "needs_branches",
    "needs_model",
]
