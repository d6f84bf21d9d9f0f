"""Options for loading one model onto one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgedec._support.options import (
    DEVICE,
    DRAFTING,
    check_limits,
    check_whole,
    declared,
    described,
    option,
)


@described
@dataclass(frozen=True, slots=True, init=False)
class LoadOptions:
    """Load options of one model; None or empty leaves a choice to the runtime.

    An option that a runtime does not take is refused at load, never ignored.

    Attributes:
        own: other options by name, which the runtime declares (``AdapterInfo.options``); they
            are given by keyword like the rest.
        may_pad: whether a runtime that decides may pad passes at a cost in time; without it, rows
            are independent only where that costs next to nothing.

    """

    own: dict[str, Any] = field(hash=False)
    may_pad: bool
    # fmt: off
    threads: int | None = option(
        None, "CPU threads; default: one per core, fewer for a small model.", group=DEVICE,
        short="-t", kind="threads", planned=True, metavar="N",
    )
    batch_invariant: bool | None = option(
        None, "Pad passes, or change llama.cpp's settings, so that a seed's text is the same"
        " whatever was drafted, including near-ties; refused if none achieve that. Default: on, on"
        " the processor, for GGUF and for ONNX with 64 MB of weights or more where that is measured"
        " to cost a token behind 500 others at most 5% (ONNX with 200 MB or more: 10%), for"
        " bundles exported with it, and on openvino, which needs no padding;"
        " with --accept match only for GGUF and the latter two; never with --drafter tree or a rule"
        " that does not give a seed's text. Other targets would lose more time than they gain.",
        group=DRAFTING,
    )
    providers: Sequence[str] = option(
        (), "ONNX Runtime execution provider; repeat to add fallbacks.", group=DEVICE,
        name="provider", planned=True, metavar="NAME", takes="str | Sequence[str]",
    )
    device: str | None = option(
        None, "A device listed by `edgedec devices`, for both models; openvino is for the target"
        " only. By default, without a plan or a memory limit, an ONNX target of 200 MB or more runs"
        " on openvino if that is installed and computes its rounds faster.", group=DEVICE,
        metavar="NAME", planned=True, draft_help="A device for the draft only.",
    )
    cores: tuple[int, ...] | None = option(
        None, text="to which its threads are pinned, whatever the runtime; None is any.",
        group=DEVICE, planned=True,
    )
    # fmt: on
    def __init__(self, may_pad: bool = True, **options: Any) -> None:
        check_threads("threads", options.get("threads"))
        for name, default in _DEFAULTS.items():
            object.__setattr__(self, name, options.pop(name, default))
        own = {name: value for name, value in options.items() if value is not None}
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "may_pad", may_pad)

    def changed(self, **changes: Any) -> LoadOptions:
        """Return a copy with some options changed."""
        kept = {name: getattr(self, name) for name in (*COMMON, "may_pad")}
        return LoadOptions(**kept | self.own | changes)


_DEFAULTS = {one.field: one.default for one in declared(LoadOptions).values()}
# Options that every runtime takes; it declares the others.
COMMON = tuple(_DEFAULTS)


def check_threads(name: str, value: object) -> None:
    """Raise InputError, which begins with ``name``, for an invalid number of threads."""
    check_whole(f"{name} is", value)
    check_limits(name, value, 1, None)
