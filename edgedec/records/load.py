"""How one model is put on one device: what a runtime's adapter is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from edgedec.decoding.sampling.params import check_whole
from edgedec.errors import InputError

# What the command line calls those that it calls otherwise.
_OPTIONS = {"kv": "--kv-type", "providers": "--provider"}
KV_TYPES = ("f32", "f16", "q8_0", "q4_0")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Choices for one model; None or empty leaves a choice to the runtime.

    A choice that a runtime does not have is refused by it, never ignored.

    Attributes:
        threads: for a pass.
        batch_threads: for a pass over many tokens, as in prefill; None is ``threads``.
        row_invariant: make a row's numbers independent of how many rows are computed with
            it; None lets the runtime do so where it costs nothing or the file was made for it.
        providers: ONNX Runtime execution providers, most wanted first.
        kv: the type of keys and values, one of ``KV_TYPES``.
        flash_attention: on or off.
        device: a device's name as ``edgedec devices`` lists it.
        gpu_layers: how many layers go to that device; -1 is all.
        mmap: map the weights rather than read them.
        mlock: keep the weights in memory.
        cores: that its threads are kept on, whatever the runtime; None is any.
    """

    threads: int | None = None
    batch_threads: int | None = None
    row_invariant: bool | None = None
    providers: Sequence[str] = ()
    kv: str | None = None
    flash_attention: bool | None = None
    device: str | None = None
    gpu_layers: int | None = None
    mmap: bool | None = None
    mlock: bool | None = None
    cores: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.kv is not None and self.kv not in KV_TYPES:
            raise InputError(f"kv {self.kv!r}: expected one of {', '.join(KV_TYPES)}")
        check_whole("gpu_layers is", self.gpu_layers)
        for name in ("threads", "batch_threads"):
            value = getattr(self, name)
            check_whole(f"{name} is", value)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: expected 1 or more")

    def only(self, runtime: str, *known: str) -> None:
        """Refuse what was chosen and ``runtime`` does not have.

        Raises:
            InputError: a choice beyond ``known``.
        """
        # Every runtime can let rows depend on their pass; its threads inherit their cores.
        free = {"cores"} if self.row_invariant else {"cores", "row_invariant"}
        for field in dataclasses.fields(LoadOptions):
            chosen = getattr(self, field.name) != field.default
            if chosen and field.name not in {*known, *free}:
                option = _OPTIONS.get(field.name, f"--{field.name.replace('_', '-')}")
                raise InputError(
                    f"{field.name} ({option}) is not a choice of the runtime {runtime}: leave it"
                    " out, or use a model in another format"
                )
