"""A library in a folder of the test's own."""

from pathlib import Path

import pytest

from edgedec.library import Library


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "library")


@pytest.fixture
def said() -> list[str]:
    return []
