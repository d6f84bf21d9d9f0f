"""What ``dir()``, and so the completion of editors and notebooks, shows of an object."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable
from typing import ClassVar

_OWN = "hidden_names"


class _ShownType(ABCMeta):
    """Hides the names of a class as well, which Python's own completion adds to its object's."""

    def __dir__(cls) -> list[str]:
        return _shown(super().__dir__(), getattr(cls, _OWN, ()))


class Shown(metaclass=_ShownType):
    """A class whose ``dir()``, and that of its objects, leaves out what programs do not need.

    Attributes:
        hidden_names: public names that other parts of edgedec use; they stay accessible.

    """

    hidden_names: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return _shown(super().__dir__(), self.hidden_names)


def _shown(names: Iterable[str], hidden: Iterable[str]) -> list[str]:
    left_out = {*hidden, _OWN}
    return [
        name
        for name in names
        if name not in left_out and (name.startswith("__") or not name.startswith("_"))
    ]
