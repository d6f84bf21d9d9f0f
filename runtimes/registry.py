"""From a runtime's name to its adapter: the module of that name in this package.

An adapter has two functions: ``load(path, *, threads, providers, row_invariant) -> Model``
and ``devices() -> list[str]``. It is imported when it is first asked for, so that a runtime
that is not installed costs nothing and breaks nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from edgedec import runtimes
from edgedec.decoding.session import Model
from edgedec.errors import InputError, RuntimeUnavailable


class Adapter(Protocol):
    """What a runtime's module offers."""

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] = (),
        row_invariant: bool | None = None,
    ) -> Model:
        """Load a model.

        Args:
            path: the model's file, or the folder it stands in.
            threads: for one pass; None lets the runtime choose.
            providers: execution providers, most wanted first; none is the runtime's default.
            row_invariant: make a row's numbers independent of how many rows are computed
                with it; None lets the runtime do so where it costs speculation nothing.

        Raises:
            BundleError: the file is missing, damaged, or not one of this runtime.
            RuntimeUnavailable: a provider that was asked for is not there.

        """
        ...

    def devices(self) -> list[str]:
        """What this runtime can compute on here, one line each."""
        ...


def names() -> list[str]:
    """The runtimes there is an adapter for, installed or not."""
    found = (module.name for module in pkgutil.iter_modules(runtimes.__path__))
    return sorted(name for name in found if name != "registry")


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
        raise RuntimeUnavailable(
            f"the runtime {name!r} needs the package {error.name!r}: pip install {error.name}"
        ) from error
    return cast(Adapter, module)
