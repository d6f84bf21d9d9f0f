"""The user's folders besides the cache: models, settings, and what was typed in a chat.

Each follows the system's conventions (``platformdirs``), and a variable of the environment
moves it.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "edgedec"


def library() -> Path:
    """Return the folder of models: ``$EDGEDEC_LIBRARY``, or one in the user's data folder."""
    from platformdirs import user_data_path

    return _moved("EDGEDEC_LIBRARY") or user_data_path(_NAME, appauthor=False) / "library"


def config_file() -> Path:
    """Return the file of defaults: ``$EDGEDEC_CONFIG``, or one in the user's config folder."""
    from platformdirs import user_config_path

    return _moved("EDGEDEC_CONFIG") or user_config_path(_NAME, appauthor=False) / "config.toml"


def history_file() -> Path:
    """Return the file of what was typed in chats, in the user's state folder."""
    from platformdirs import user_state_path

    return _moved("EDGEDEC_HISTORY") or user_state_path(_NAME, appauthor=False) / "chat-history"


def _moved(variable: str) -> Path | None:
    value = os.environ.get(variable, "")
    return Path(value).expanduser().absolute() if value else None
