"""A model that a server may load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgedec.loading.sources import Source
from edgedec.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that a server may load.

    Attributes:
        name: its id in the API; ``aliases`` are other names for it.
        open: opens it; raises EdgedecError.
        source: returns its target's files, which are not loaded; raises EdgedecError.
        aliases: see above.
        planning: the command that makes a plan of it; "" if callers are not told.
        max_context: tokens that its context was limited to; None without a limit.

    """

    name: str
    open: Callable[[], Pipeline]
    source: Callable[[], Source]
    aliases: tuple[str, ...] = ()
    planning: str = ""
    max_context: int | None = None
