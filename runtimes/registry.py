"""Finds the adapter of a runtime or of a model file's format.

A runtime is a module or package of this one with an ``INFO``, or an installed package that names
one in its entry points::

    [project.entry-points."edgedec.runtimes"]
    mine = "my_package:INFO"

``INFO`` is imported whenever a runtime is chosen, so it must not import optional packages. The
functions are in the module that it names, which is imported on first use: a runtime that is not
installed costs nothing and breaks nothing. Modules here whose names begin with an underscore
contain code that several adapters share.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from edgedec._support.fields import one_line
from edgedec.errors import EdgedecError, ExtraMissing, InputError, RuntimeUnavailable
from edgedec.memory import huge_pages
from edgedec.records.adapter import AdapterInfo, LoadOption
from edgedec.runtimes import _added

if TYPE_CHECKING:
    from edgedec.decoding.session import HeadModel, Model
    from edgedec.hardware.device import Device
    from edgedec.records.adapter import Prepared
    from edgedec.records.load import LoadOptions


class Adapter(Protocol):
    """The interface of a runtime's module.

    It may have eight more functions. ``describe(path) -> list[str]`` says more of a model.
    ``problems() -> list[str]`` lists installed device packages that do not load, one line each.
    ``admit(path, files)`` raises a BundleError if the main file of an untrusted model is damaged,
    or names files outside ``files``. ``sizes(path) -> dict[str, int]`` returns those of
    ``records.adapter.SIZES`` that a model's file states. ``prepare(path) -> Prepared`` writes files
    that make a model load faster on this machine. ``quickest(path, options, draft) -> str | None``
    names the device that computes a target fastest with a draft model of this format, or without
    one if ``draft`` is None, unless that is the default of ``load``. ``load_head(path, files,
    options) -> HeadModel`` loads a head. ``remote_devices(rpc) -> list[Device]`` asks other
    machines' servers, if there is an option ``rpc``.
    """

    def load(self, path: Path, options: LoadOptions) -> Model:
        """Load a model.

        Args:
            path: the model's file, or its folder.
            options: its load options; only those that all runtimes take and those that ``INFO``
                declares.

        Raises:
            InputError: options that exclude each other.
            BundleError: the file is missing, damaged, or not one of this runtime.
            RuntimeUnavailable: a provider or device that was asked for is not there.

        """
        ...

    def devices(self) -> list[Device]:
        """Return the devices of this runtime on this machine."""
        ...


# -- listing runtimes ---------------------------------------------------------------------------


def infos() -> Mapping[str, AdapterInfo]:
    """Return all runtimes by name, installed or not, in order of preference."""
    return _added.found()[0]


def problems() -> tuple[str, ...]:
    """Return a line for each runtime that an installed package fails to add."""
    return _added.found()[1]


def added() -> dict[str, AdapterInfo]:
    """Return the runtimes that installed packages add."""
    own = {info.name for info in _added.built_in()}
    return {name: info for name, info in infos().items() if name not in own}


def names() -> list[str]:
    """Return the names of all runtimes, installed or not."""
    return sorted(infos())


def formats() -> list[str]:
    """Return all formats of model files, in order of preference."""
    return [format for info in infos().values() for format in info.formats]


def options() -> dict[str, LoadOption]:
    """Return, by name, load options that only some runtimes take."""
    return {option.name: option for info in infos().values() for option in info.options}


def built_in_options() -> list[LoadOption]:
    """Return those of this package's own runtimes, without looking for others."""
    return [option for info in _added.built_in() for option in info.options]


def packages() -> set[str]:
    """Return the distributions that compute, see ``AdapterInfo``."""
    return {package for info in infos().values() for package in info.packages}


def of_format(format: str) -> AdapterInfo:
    """Return the runtime of a format, or raise InputError."""
    for info in infos().values():
        if format in info.formats:
            return info
    raise InputError(f"no runtime for the format {format!r}: expected {', '.join(formats())}")


# -- one runtime --------------------------------------------------------------------------------


def installed(name: str) -> bool:
    """Return whether an adapter can be imported here."""
    try:
        adapter(name)
    except (InputError, RuntimeUnavailable):
        return False
    return True


def adapter(name: str) -> Adapter:
    """Import and return the adapter of a runtime.

    Raises:
        InputError: there is no such adapter.
        RuntimeUnavailable: the package it needs is not installed, or does not load.

    """
    if name not in infos():
        raise InputError(f"no runtime {name!r}: expected one of {', '.join(names())}")
    info = infos()[name]
    try:
        return cast(Adapter, importlib.import_module(info.module))
    except ModuleNotFoundError as error:
        from edgedec._support import installation

        raise ExtraMissing(
            installation.needs(f"the runtime {name!r}", info.extra, error.name or name)
        ) from error
    except EdgedecError:
        raise
    except Exception as error:  # any error of a package during its import
        raise RuntimeUnavailable(
            f"the runtime {name!r} does not load: {one_line(str(error))}"
        ) from error


def admit(format: str, path: Path, files: Collection[Path]) -> None:
    """Check a model's files before its runtime opens them.

    Raises:
        BundleError: they are damaged, or the main one names others.
        RuntimeUnavailable: the runtime is not installed.

    """
    check_files = getattr(adapter(of_format(format).name), "admit", None)
    if check_files is not None:
        check_files(path, files)


def sizes(format: str, path: Path) -> dict[str, int]:
    """Return the sizes that a model's file states, by name; empty if its runtime reads none.

    Raises:
        BundleError: the file is damaged.
        RuntimeUnavailable: the runtime is not installed.

    """
    read = getattr(adapter(of_format(format).name), "sizes", None)
    found: dict[str, int] = {} if read is None else read(path)
    if "layers" in found:  # every layer has keys and values, unless the file says otherwise
        found.setdefault("kv_layers", found["layers"])
    if {"kv_heads", "head_dim"} <= found.keys():  # and heads of one size
        each = found["kv_heads"] * found["head_dim"]
        found.setdefault("kv_channels", found.get("kv_layers", 0) * each)
    return found


def prepare(format: str, path: Path) -> Prepared | None:
    """Write what makes a model load faster here; None if its runtime needs nothing of the kind.

    Raises:
        BundleError: the model is damaged.
        RuntimeUnavailable: the runtime is not installed, or what it writes cannot be kept.

    """
    write = getattr(adapter(of_format(format).name), "prepare", None)
    found: Prepared | None = None if write is None else write(path)
    return found


def describe(format: str, path: Path) -> list[str]:
    """Return lines about a model for people; none if its runtime has nothing to add.

    Raises:
        BundleError: the model is damaged.

    """
    try:
        lines = getattr(adapter(of_format(format).name), "describe", None)
    except (InputError, RuntimeUnavailable):
        return []
    return [] if lines is None else list(lines(path))


def remote_devices(rpc: str) -> list[Device]:
    """Return the devices of other machines' servers, each with its memory.

    Args:
        rpc: ``HOST:PORT[,HOST:PORT]``.

    Raises:
        InputError: malformed, or an address that is not private.
        RuntimeUnavailable: no runtime here takes servers, or one cannot be used.

    """
    for name, info in infos().items():
        if any(option.name == "rpc" for option in info.options):
            found: list[Device] = adapter(name).remote_devices(rpc)  # type: ignore[attr-defined]
            return found
    raise RuntimeUnavailable("no runtime takes --rpc")


def quickest(
    format: str, path: Path, options: LoadOptions, draft: Path | None = None
) -> str | None:
    """Return the device that computes a target fastest; None is the one that ``load`` takes.

    Args:
        options: that name no device.
        draft: main file of a checked draft model of the same format, with which it decodes.

    Raises:
        BundleError: the model is damaged.
        RuntimeUnavailable: the runtime is not installed.

    """
    find = getattr(adapter(of_format(format).name), "quickest", None)
    found: str | None = None if find is None else find(path, options, draft)
    return found


def load_head(format: str, path: Path, files: Collection[Path], options: LoadOptions) -> HeadModel:
    """Load a head by the runtime of its format.

    Args:
        path: its main file, which ``admit`` has checked.
        files: all of its files; no other is opened.

    Raises:
        RuntimeUnavailable: the format's runtime has no heads.
        BundleError: a file is missing, damaged, not listed, or not a head.

    """
    name = of_format(format).name
    loader = getattr(adapter(name), "load_head", None)
    if loader is None:
        raise RuntimeUnavailable(f"the runtime {name} has no heads: use --format onnx")
    with huge_pages.gathering():
        head: HeadModel = loader(path, files, options)
    return head


def load(format: str, path: Path, options: LoadOptions, for_draft: Collection[str] = ()) -> Model:
    """Load a model by the runtime of its format.

    Args:
        for_draft: names of the options that were given for the draft alone; messages say so.

    Raises:
        InputError: no runtime for the format, or it does not take one of the options.
        BundleError, RuntimeUnavailable: see ``Adapter.load``.

    """
    info = of_format(format)
    runtime = adapter(info.name)
    refuse_others(info, options, for_draft)
    with huge_pages.gathering():
        model = runtime.load(path, options)
    if options.batch_invariant and not model.capabilities.batch_invariant:
        model.close()
        raise RuntimeUnavailable(
            f"{path}: the runtime {info.name} has no batch invariance: load it without"
            " batch_invariant (--no-batch-invariant)"
        )
    return model


def refuse_others(info: AdapterInfo, options: LoadOptions, for_draft: Collection[str] = ()) -> None:
    """Refuse options that a runtime does not take, and invalid values, as the user wrote them."""
    own = {option.name: option for option in info.options}
    refused = [
        (name, flag(name, value, draft=name in for_draft))
        for name, value in options.own.items()
        if name not in own
    ]
    if options.providers and not info.providers:
        refused.append(("providers", "--provider"))
    for name, given in refused:
        raise InputError(
            f"{name} ({given}) is not a choice of the runtime {info.name}: leave it out, or use a"
            " model in another format"
        )
    for name, value in options.own.items():
        own[name].check(value)


def flag(name: str, value: object, *, draft: bool = False) -> str:
    """Return an option with a value as the command line has it; see ``LoadOption.as_given``."""
    option = options().get(name) or LoadOption(name, type(value), "")
    return option.as_given(value, draft=draft)
