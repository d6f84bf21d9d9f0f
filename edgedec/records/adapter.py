"""Facts of a runtime and its options, available before its library is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.options import DEVICE, Declared, Option, check_limits, check_whole
from edgedec.errors import InputError

# Sizes of a model that both a bundle's manifest and the model's file state.
SIZES = (
    "layers", "kv_layers", "kv_heads", "head_dim", "kv_channels", "vocab_size", "max_context",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadOption:
    """An option of one runtime, beyond those that all of them take.

    Attributes:
        name: as a keyword.
        type: ``bool``, ``int`` or ``str``.
        help: a sentence for ``--help``.
        default: used if nothing is chosen; None leaves it to the runtime.
        choices: the allowed texts; empty is any.
        least, most: bounds of a number; None sets none.
        draft_help: help of the option for the draft alone; empty means there is none.
        in_bytes: the number is a size, which the command line takes as ``512MB``.
        target_only: the draft does not take it over from the target.
        planned: a plan decides it.
        common: many people set it, so that the command line shows a flag for it.
        spares: off, it takes less memory: where a limit refuses a model otherwise, it is off.

    """

    name: str
    type: type
    help: str
    default: bool | int | str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    draft_help: str = ""
    in_bytes: bool = False
    target_only: bool = False
    planned: bool = False
    common: bool = False
    spares: bool = False

    @property
    def declared(self) -> Declared:
        """The option as those are that every model has."""
        kind = "int | str" if self.in_bytes else self.type.__name__
        about = Option(
            self.help, group=DEVICE, kind="size" if self.in_bytes else "",
            metavar="SIZE" if self.in_bytes else "N" if self.type is int else None,
            choices=self.choices, least=self.least, most=self.most, draft_help=self.draft_help,
        )  # fmt: skip
        return Declared(self.name, self.name, f"{kind} | None", None, about)

    @property
    def on_command_line(self) -> str:
        """Name on the command line, as ``--gpu-layers``."""
        return f"--{self.name.replace('_', '-')}"

    def as_given(self, value: object, *, draft: bool = False) -> str:
        """Return the flag that gives this value, as ``--no-mmap``.

        Args:
            value: False of an option that is on or off is its own flag.
            draft: whether it was given for the draft alone, as ``--draft-gpu-layers``.

        """
        before = "--draft-" if draft else "--"
        if self.type is bool and value is False:
            before += "no-"
        return self.on_command_line.replace("--", before, 1)

    def check(self, value: object) -> None:
        """Raise InputError for an invalid value, with what was expected."""
        if self.type is int:
            check_whole(f"{self.name} is", value)
            check_limits(self.name, value, self.least, self.most)
        elif self.choices and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise InputError(f"{self.name} {value!r}: expected one of {allowed}")


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """Facts of a runtime, available before its library is imported.

    Attributes:
        name: of the runtime.
        module: the module with its functions (``edgedec.runtimes.registry.Adapter``), which
            is imported when they are first needed.
        formats: of the model files that it loads.
        order: preference among runtimes if a model has several formats: the lowest usable one is
            taken. By decoding speed (docs/measurements/formats.jsonl).
        packages: distributions that compute, the required one first; a profile is valid for their
            versions. Others may end in ``*``.
        extra: of this distribution, which installs them; empty if they come with it.
        purpose: of that extra, for ``edgedec doctor``.
        wheels: options with which pip finds prebuilt wheels of a package that the package index
            has as source alone.
        options: options beyond those of every runtime.
        providers: whether it has execution providers, of which ``LoadOptions`` may name some.
        processor: whether it computes on the processor where no device is named.
        target_places: devices and providers that the draft does not take over from the target.
        shown: given a target's file and layers, whether the runtime may be able to show the
            residual streams before these to a head in another format; None if it never does.

    """

    name: str
    module: str
    formats: tuple[str, ...]
    order: int = 100
    packages: tuple[str, ...] = ()
    extra: str = ""
    purpose: str = ""
    wheels: str = ""
    options: tuple[LoadOption, ...] = ()
    providers: bool = False
    processor: bool = True
    target_places: tuple[str, ...] = ()
    shown: Callable[[Path, Sequence[int]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The outcome of preparing a model for this machine.

    Attributes:
        what: in a few words.
        size_bytes: of what is kept for it on this machine; 0 if nothing is.
        seconds: that it took.

    """

    what: str
    size_bytes: int
    seconds: float
