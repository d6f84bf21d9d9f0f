"""The user's folders: the cache, models, settings, and what was typed in a chat.

What is lost in the cache is measured or checked again. The others follow the system's conventions
(``platformdirs``), and a variable of the environment moves each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgedec.errors import InputError

_NAME = "edgedec"


def library() -> Path:
    """Return the folder of models: ``$EDGEDEC_LIBRARY``, or one in the user's data folder."""
    from platformdirs import user_data_path

    with _home("EDGEDEC_LIBRARY"):
        return _moved("EDGEDEC_LIBRARY") or user_data_path(_NAME, appauthor=False) / "library"


def config_file() -> Path:
    """Return the file of defaults: ``$EDGEDEC_CONFIG``, or one in the user's config folder."""
    from platformdirs import user_config_path

    with _home("EDGEDEC_CONFIG"):
        return _moved("EDGEDEC_CONFIG") or user_config_path(_NAME, appauthor=False) / "config.toml"


def history_file() -> Path:
    """Return the file of what was typed in chats, in the user's state folder."""
    from platformdirs import user_state_path

    with _home("EDGEDEC_HISTORY"):
        return _moved("EDGEDEC_HISTORY") or user_state_path(_NAME, appauthor=False) / "chat-history"


@contextmanager
def _home(variable: str) -> Iterator[None]:
    """Report a missing home folder, as a container's user may have none, as InputError."""
    try:
        yield
    except RuntimeError:
        raise InputError(f"this user has no home folder: set HOME, or {variable}") from None


def _moved(variable: str) -> Path | None:
    value = os.environ.get(variable, "")
    return Path(value).expanduser().absolute() if value else None


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
