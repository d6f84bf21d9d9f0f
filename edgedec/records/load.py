"""Options for loading one model onto one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgedec.decoding.sampling.params import check_whole
from edgedec.errors import InputError

# Options that every runtime takes; it declares the others.
COMMON = ("threads", "batch_invariant", "providers", "device", "cores")
_KEPT = (*COMMON, "may_pad")


@dataclass(frozen=True, slots=True, init=False)
class LoadOptions:
    """Load options of one model; None or empty leaves a choice to the runtime.

    An option that a runtime does not take is refused at load, never ignored.

    Attributes:
        threads: of the processor, for a pass; None is one for each core, fewer for a small model.
        batch_invariant: make a row's logits independent of how many rows are computed with it; None
            lets the runtime decide.
        may_pad: whether a runtime that decides may pad passes at a cost in time; without it, rows
            are independent only where that costs next to nothing.
        providers: execution providers of the runtime, most wanted first.
        device: a device's name as ``edgedec devices`` lists it.
        cores: to which its threads are pinned, whatever the runtime; None is any.
        own: other options by name, which the runtime declares (``AdapterInfo.options``); they
            are given by keyword like the rest.

    """

    threads: int | None
    batch_invariant: bool | None
    providers: Sequence[str]
    device: str | None
    cores: tuple[int, ...] | None
    own: dict[str, Any] = field(hash=False)
    may_pad: bool

    def __init__(
        self,
        threads: int | None = None,
        batch_invariant: bool | None = None,
        providers: Sequence[str] = (),
        device: str | None = None,
        cores: tuple[int, ...] | None = None,
        may_pad: bool = True,
        **own: Any,
    ) -> None:
        check_threads("threads", threads)
        chosen = {name: value for name, value in own.items() if value is not None}
        values = (threads, batch_invariant, providers, device, cores, chosen, may_pad)
        for name, value in zip((*COMMON, "own", "may_pad"), values, strict=True):
            object.__setattr__(self, name, value)

    def changed(self, **changes: Any) -> LoadOptions:
        """Return a copy with some options changed."""
        return LoadOptions(**{name: getattr(self, name) for name in _KEPT} | self.own | changes)


def check_threads(name: str, value: object) -> None:
    """Raise InputError, which begins with ``name``, for an invalid number of threads."""
    check_whole(f"{name} is", value)
    if isinstance(value, int) and value < 1:
        raise InputError(f"{name} is {value}: expected 1 or more")
