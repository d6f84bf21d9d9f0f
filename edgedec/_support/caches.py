"""The user's cache folder; what is lost there is measured or checked again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgedec._support.atomic import write_json


def folder() -> Path:
    """The part that is edgedec's: ``$XDG_CACHE_HOME/edgedec`` or ``~/.cache/edgedec``.

    Raises:
        OSError: this user has no home, as some containers' have none.

    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        above = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return above / "edgedec"


def keep(file: Path, raw: Any) -> bool:
    """Write JSON to a file in the cache, atomically; False if that fails."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(file, raw)
    except OSError:
        return False
    return True
