"""Drafters added by installed packages, through entry points that name a module.

The module has ``INFO`` and ``build``, like the files of this folder. It is imported when its
drafter, or every drafter, as in planning, is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from edgedec._support.fields import one_line
from edgedec._support.plugins import Point, points
from edgedec.errors import EdgedecError, RuntimeUnavailable

if TYPE_CHECKING:
    from edgedec.decoding.drafting.base import (
        Drafter,
        DrafterParts,
        DraftLimits,
        GoOn,
        RoundFeedback,
    )
    from edgedec.decoding.randomness import Streams
    from edgedec.decoding.sampling import Sampler
    from edgedec.decoding.tree import Draft

GROUP = "edgedec.drafters"
# Names that fit in a plan, a command line and a table.
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_T = TypeVar("_T")


@cache
def found(taken: frozenset[str]) -> tuple[dict[str, Point], tuple[str, ...]]:
    """Return entry points by drafter name, and a line for each whose name cannot be used.

    Args:
        taken: names that no package may use.

    """
    named: dict[str, Point] = {}
    problems = []
    for point in points(GROUP):
        wrong = ""
        if point.name in taken or point.name in named:
            wrong = "there is a drafter of this name already"
        elif not _NAME.fullmatch(point.name):
            wrong = "expected a name of small letters, digits, - and _"
        if wrong:
            problems.append(f"{point.package}: its drafter {point.name!r:.60} is left out: {wrong}")
        else:
            named[point.name] = point
    return named, tuple(problems)


def load(point: Point, known: Collection[str]) -> tuple[Any, str]:
    """Import a package's drafter; return its module, and a line on why it cannot be used.

    Args:
        known: the drafters that its ``parts`` may name.

    """
    from edgedec.decoding.drafting.base import DrafterInfo

    module, problem = point.value()
    if problem:
        return None, problem
    info = getattr(module, "INFO", None)
    wrong = ""
    if not isinstance(info, DrafterInfo):
        wrong = f"expected INFO, a DrafterInfo, got {info!r:.60}"
    elif not callable(getattr(module, "build", None)):
        wrong = "expected a function build(parts)"
    elif unknown := set(info.parts) - set(known) | {point.name} & set(info.parts):
        wrong = f"one of its parts is {min(unknown)!r:.60}: expected other drafters"
    if wrong:
        return None, f"{point.package}: its drafter {point.name!r} cannot be used: {wrong}"
    return module, ""


class Added:
    """A package's drafter, whose errors become one line that names the package.

    Raises:
        RuntimeUnavailable: from every method, if the drafter raises any error of its own.

    """

    def __init__(self, point: Point, build: Callable[[DrafterParts], Drafter], parts: DrafterParts):
        self._point = point
        self.name = point.name
        self._drafter = self._guard(build, parts)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._guard(self._drafter.begin, prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        return self._guard(self._drafter.propose, root, limits, go_on, streams)

    def observe(self, feedback: RoundFeedback) -> None:
        self._guard(self._drafter.observe, feedback)

    def close(self) -> None:
        self._guard(self._drafter.close)

    def _guard(self, call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return call(*arguments)
        except EdgedecError:
            raise
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}")
            raise RuntimeUnavailable(
                f"{self._point.package}: its drafter {self.name!r} failed: {reason}"
            ) from error
