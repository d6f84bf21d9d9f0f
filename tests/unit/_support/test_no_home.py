"""A user without a home, as a container's number without an entry, gets one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import platformdirs
import pytest

from edgedec._support import user_folders
from edgedec.errors import InputError


@pytest.mark.parametrize(
    ("name", "variable", "found"),
    [
        ("library", "EDGEDEC_LIBRARY", "user_data_path"),
        ("config_file", "EDGEDEC_CONFIG", "user_config_path"),
        ("history_file", "EDGEDEC_HISTORY", "user_state_path"),
    ],
)
def test_one_line_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str, found: str
) -> None:
    def none(*given: Any, **more: Any) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(platformdirs, found, none)
    folder = getattr(user_folders, name)
    with pytest.raises(InputError, match=f"no home folder: set HOME, or {variable}"):
        folder()
    monkeypatch.setenv(variable, "/somewhere")  # the control
    assert folder() == Path("/somewhere")
