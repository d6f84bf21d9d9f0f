"""From a runtime's name to its adapter: the module of that name in this package.

An adapter has four functions, ``load(path, options) -> Model``, ``devices() -> list[Device]``,
``problems() -> list[str]`` and ``measure(device, threads) -> Speed``.
It is imported when it is first asked for, so that a runtime that is not installed costs nothing
and breaks nothing. A module whose name begins with an underscore is none: it holds what several
adapters share.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from edgedec import runtimes
from edgedec._support import installation
from edgedec.decoding.session import Model
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware.device import Device, Speed
from edgedec.records.load import LoadOptions

# Which adapter runs a format of model files.
RUNTIMES = {"gguf": "llamacpp", "onnx": "onnx", "optimum": "optimum"}
# The extra that brings a package which the plain install does not.
_EXTRAS = {"llama_cpp": "gguf"}


class Adapter(Protocol):
    """What a runtime's module offers."""

    def load(self, path: Path, options: LoadOptions) -> Model:
        """Load a model.

        Args:
            path: the model's file, or the folder it stands in.
            options: what was chosen for it.

        Raises:
            InputError: a choice this runtime does not have.
            BundleError: the file is missing, damaged, or not one of this runtime.
            RuntimeUnavailable: a provider or device that was asked for is not there.

        """
        ...

    def devices(self) -> list[Device]:
        """What this runtime can compute on here."""
        ...

    def problems(self) -> list[str]:
        """What is installed to give it more devices and does not load, a line each."""
        ...

    def measure(self, device: Device, threads: int) -> Speed:
        """What one of its devices reaches; takes about a second.

        Args:
            device: one of ``devices()``.
            threads: where it is the processor.

        Raises:
            RuntimeUnavailable: the device is gone, or cannot compute a product.

        """
        ...


def names() -> list[str]:
    """The runtimes there is an adapter for, installed or not."""
    found = (module.name for module in pkgutil.iter_modules(runtimes.__path__))
    return sorted(n for n in found if n != "registry" and not n.startswith("_"))


def installed(name: str) -> bool:
    """Whether an adapter can be imported here."""
    try:
        adapter(name)
    except (InputError, RuntimeUnavailable):
        return False
    return True


def adapter(name: str) -> Adapter:
    """The adapter of a runtime, imported now.

    Raises:
        InputError: there is no such adapter.
        RuntimeUnavailable: the package it needs is not installed.

    """
    if name not in names():
        raise InputError(f"no runtime {name!r}: expected one of {', '.join(names())}")
    try:
        module = importlib.import_module(f"{runtimes.__name__}.{name}")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        missing = error.name or name
        install = installation.install(extra=extra) if extra else installation.install(missing)
        raise RuntimeUnavailable(
            f"the runtime {name!r} needs the package {missing!r}: {install}"
        ) from error
    return cast(Adapter, module)
