"""Drafters, one file each, found by name; copy ``lookup.py`` to write your own.

A drafter's file has ``INFO``, a ``DrafterInfo``, and ``build(parts: DrafterParts) -> Drafter``.
Everything else (planner, profile, footprint, command line) reads ``INFO``. An installed
package adds a drafter by an entry point that names such a module::

    [project.entry-points."edgedec.drafters"]
    mine = "my_package.drafter"
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol, cast

from edgedec.errors import InputError, RuntimeUnavailable

if TYPE_CHECKING:  # the command line lists names without importing numpy
    from edgedec._support.plugins import Point
    from edgedec.decoding.drafting._spec import Registry, Stage
    from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts

# The drafter that drafts nothing: plain decoding.
PLAIN = "none"
# Size of a draft model's context window in tokens, unless another is asked for: the best or next to
# it on both pairs that were measured (docs/measurements/draft_context.jsonl).
DRAFT_CONTEXT = 256
# The drafter that ``auto`` stands for where the target has a head.
HEADED = "headed"
# The name for the most suitable drafter, see ``default``.
AUTO = "auto"
# Drafters of former releases, and what to do without them.
_REMOVED = {"head_tree": "its trees were slower than the head's chains: use head or headed"}


class _Module(Protocol):
    """The contents of a drafter's module."""

    INFO: DrafterInfo

    def build(self, parts: DrafterParts) -> Drafter: ...


# -- listing drafters ---------------------------------------------------------------------------


@cache
def built_in() -> tuple[str, ...]:
    """Return the drafters of this folder: its modules without a leading underscore."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if name != "base" and not name.startswith("_")))


def added() -> dict[str, str]:
    """Return added drafters by name, with each one's package; imports none of them."""
    return {name: point.package for name, point in _points()[0].items()}


def names() -> list[str]:
    """Return the names of all drafters."""
    return sorted((*built_in(), *added()))


def known(name: str) -> bool:
    """Return whether a drafter of this name exists; searches packages only if necessary.

    Stages, as ``lookup:n=8,head:k=4``, are one drafter.
    """
    if is_spec(name):
        try:
            return bool(stages(name))
        except InputError:
            return False
    return name in built_in() or (name != AUTO and name in added())


# -- stages -------------------------------------------------------------------------------------


def is_spec(name: str) -> bool:
    """Return whether a name is meant as stages, or as one stage with keys."""
    return any(mark in name for mark in ":,=")


def stages(spec: object) -> tuple[Stage, ...]:
    """Return the stages of a text such as ``lookup:n=8,head:k=4``.

    Raises:
        InputError: says in one line what is wrong, and what was expected.

    """
    from edgedec.decoding.drafting._spec import parse

    return parse(spec, _registry())


def _registry() -> Registry:
    from edgedec.decoding.drafting._spec import Registry

    return Registry(names, info, no_drafter, create, PLAIN)


def of_spec(spec: object) -> str:
    """Return the drafter that a text of stages names: itself, written the usual way.

    Raises:
        InputError: see ``stages``.

    """
    if spec == AUTO:
        return AUTO
    from edgedec.decoding.drafting._spec import written

    return written(stages(spec))


def no_drafter(name: str, expected: str = "") -> str:
    """Return the line that says that a name is no drafter's, and what to use."""
    if why := _REMOVED.get(name.replace("-", "_")):
        return f"drafter {name!r} was removed, since {why}"
    return f"no drafter {name!r}: {expected or 'expected one of ' + ', '.join(names())}"


def problems() -> list[str]:
    """Return a line for each drafter that an installed package fails to add."""
    loaded = (_loaded(name)[1] for name in added())
    return [*_points()[1], *filter(None, loaded)]


def info(name: str) -> DrafterInfo:
    """Return a drafter's facts; defaults for a name that is not a drafter, such as ``auto``.

    Raises:
        RuntimeUnavailable: a package adds it, and it does not load.

    """
    if is_spec(name):
        from edgedec.decoding.drafting._spec import info_of

        return info_of(stages(name), _registry()) if known(name) else _nothing()
    return _module(name).INFO if known(name) else _nothing()


def with_parts(drafters: Iterable[str]) -> list[str]:
    """Return drafters with their parts, and the parts of these, each of them once."""
    found = dict.fromkeys(drafters)
    for name in tuple(found):
        found |= dict.fromkeys(with_parts(info(name).parts))
    return list(found)


@cache
def usable() -> tuple[str, ...]:
    """Return all drafters that load; warn about those from packages that do not."""
    for problem in problems():
        logging.getLogger("edgedec").warning(problem)
    return tuple(name for name in names() if not _loaded(name)[1])


def planned() -> list[str]:
    """Return the drafters that plans choose from: those without weights first, composites last."""
    found = {name: info(name) for name in usable()}
    ranks = {n: (of.needs_weights, len(with_parts([n])), n) for n, of in found.items()}
    return sorted((name for name in found if found[name].planned), key=ranks.__getitem__)


@cache
def default(*, with_model: bool) -> str:
    """Return the drafter that ``auto`` stands for, with or without a draft model."""
    infos = ((name, info(name)) for name in built_in())
    return next(name for name, of in infos if of.default and of.needs_model == with_model)


def forget() -> None:
    """Search installed packages again at the next request."""
    from edgedec.decoding.drafting import _added

    for cached in (_added.found, _loaded, usable):
        cached.cache_clear()


# -- building one -------------------------------------------------------------------------------


def before_model(name: str, parts: DrafterParts) -> Drafter | None:
    """Return the drafter that an overlapped one asks before its draft model, or None."""
    every = info(name).parts or (name,)
    first = [*takewhile(lambda part: not info(part).needs_model, every)]
    if not first:
        return None
    return create(",".join(first), replace(parts, draft=None, rivals=every[len(first) :]))


def create(name: str, parts: DrafterParts) -> Drafter:
    """Build a drafter by name; its module is imported now, not before.

    Args:
        name: one of ``names()``.
        parts: what it is built from; the drafter takes over the draft's session.

    Raises:
        InputError: no such drafter, or something it needs was not given.
        RuntimeUnavailable: a package adds it, and it does not load.

    """
    if is_spec(name):
        from edgedec.decoding.drafting import _spec

        return _spec.build(name, stages(name), parts, _registry())
    if not known(name):
        raise InputError(no_drafter(name))
    build = _module(name).build
    if name in built_in():
        return build(parts)
    from edgedec.decoding.drafting._added import Added

    return Added(_points()[0][name], build, parts)


def _points() -> tuple[dict[str, Point], tuple[str, ...]]:
    from edgedec.decoding.drafting import _added

    return _added.found(frozenset((AUTO, *built_in())))


def _module(name: str) -> _Module:
    module, problem = _loaded(name)
    if problem:
        raise RuntimeUnavailable(problem)
    return module


@cache
def _loaded(name: str) -> tuple[_Module, str]:
    """Return a drafter's module and an empty string, or the reason why it cannot be used."""
    if name in built_in():
        return cast(_Module, importlib.import_module(f"{__name__}.{name}")), ""
    from edgedec.decoding.drafting import _added

    return _added.load(_points()[0][name], names())


@cache
def _nothing() -> DrafterInfo:
    from edgedec.decoding.drafting.base import DrafterInfo

    return DrafterInfo(planned=False)


__all__ = [
    "AUTO",
    "DRAFT_CONTEXT",
    "HEADED",
    "PLAIN",
    "added",
    "before_model",
    "built_in",
    "create",
    "default",
    "forget",
    "info",
    "is_spec",
    "known",
    "names",
    "no_drafter",
    "of_spec",
    "planned",
    "problems",
    "stages",
    "usable",
    "with_parts",
]
