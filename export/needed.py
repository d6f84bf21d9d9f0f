"""Says which extra has a package that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgedec._support import installation
from edgedec._support.interrupts import held_back
from edgedec.errors import ExtraMissing


@contextmanager
def explained_imports() -> Iterator[None]:
    """Explain how to install a missing package; hold back Ctrl-C until everything is imported."""
    try:
        with held_back():
            yield
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            installation.needs("converting a model", "export", error.name or "a package")
        ) from None
