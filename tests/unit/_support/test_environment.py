"""A variable that is set for a while, by several threads at once."""

import os
from contextlib import ExitStack

import pytest

from edgedec._support.environment import variable

NAME = "EDGEDEC_TEST_VARIABLE"


@pytest.mark.parametrize("before", [None, "own"])
def test_overlapping_contexts_restore_it_at_the_last_end(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv(NAME, before)
    first, second = ExitStack(), ExitStack()
    first.enter_context(variable(NAME, "1"))
    second.enter_context(variable(NAME, "1"))
    first.close()
    assert os.environ[NAME] == "1"
    second.close()
    assert os.environ.get(NAME) == before
    with variable(NAME, None):
        assert os.environ.get(NAME) == before


def test_an_error_restores_it() -> None:
    with pytest.raises(KeyError), variable(NAME, "1"):
        raise KeyError
    assert NAME not in os.environ
