"""Drafters, one file each, found by name; copy ``lookup.py`` to write your own.

A drafter's file has ``INFO``, a ``DrafterInfo``, and ``build(parts: DrafterParts) -> Drafter``.
Everything else (planner, profile, replay, footprint, command line) reads ``INFO``.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from edgedec.errors import InputError

if TYPE_CHECKING:  # the command line lists names, and does not wait for numpy
    from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts

# The drafter that drafts nothing: plain decoding.
PLAIN = "none"


class _Module(Protocol):
    """What a drafter's file offers."""

    INFO: DrafterInfo

    def build(self, parts: DrafterParts) -> Drafter: ...


def names() -> list[str]:
    """The drafters there are: the files of this folder that are not helpers."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name != "base" and not name.startswith("_"))


@cache
def info(name: str) -> DrafterInfo:
    """What is known of a drafter; nothing of a name that no drafter has, such as ``auto``."""
    if name in names():
        return _module(name).INFO
    from edgedec.decoding.drafting.base import DrafterInfo

    return DrafterInfo(planned=False, estimated_by="nothing")


def planned() -> list[str]:
    """The drafters that plans choose from: first those without a model, composites last."""
    ranks = {name: info(name) for name in names()}
    chosen = (name for name in ranks if ranks[name].planned)
    return sorted(chosen, key=lambda name: (ranks[name].needs_model, len(ranks[name].parts), name))


def default(*, with_model: bool) -> str:
    """The drafter that ``auto`` stands for, with a draft model or without."""
    known = ((name, info(name)) for name in names())
    return next(name for name, of in known if of.default and of.needs_model == with_model)


def before_model(name: str, parts: DrafterParts) -> Drafter | None:
    """What an overlapped drafter asks before its draft model; None where it asks nothing."""
    first, *others = info(name).parts or (name,)
    if info(first).needs_model:
        return None
    return create(first, replace(parts, draft=None, rivals=others))


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
    return _module(name).build(parts)


def _module(name: str) -> _Module:
    return cast(_Module, importlib.import_module(f"{__name__}.{name}"))


__all__ = ["PLAIN", "before_model", "create", "default", "info", "names", "planned"]
