"""Parts of the package that an installation may lack: each is a folder that nothing else needs."""

from __future__ import annotations

import importlib
from types import ModuleType

from edgedec.errors import InputError


def part(module: str, what: str) -> ModuleType:
    """Import a module of such a part.

    Args:
        module: its full name.
        what: what a user asked for, for the error.

    Raises:
        InputError: the part is not there.

    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that it needs is another matter.
        if not module.startswith(error.name or "?"):
            raise
        raise InputError(f"{what} is not part of this installation: leave it out") from None
