"""Signatures and help list every option by name, with its type and its default."""

from __future__ import annotations

import inspect
import re
import rlcompleter
from collections.abc import Callable
from typing import Any

import pytest

import edgedec
from edgedec import Pipeline


def test_names_that_are_not_listed_are_accepted() -> None:
    bound = inspect.signature(Pipeline.generate).bind(None, "x", timeout_s=3, draft="none")
    assert bound.kwargs == {"timeout_s": 3, "draft": "none"}


def explained(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each name, in Args or in the options."""
    found = dict[str, str]()
    for names, text in re.findall(
        r"^    ((?:\w+,\s+)*\w+): (.+(?:\n {8}.+)*)", function.__doc__ or "", re.M
    ):
        for name in re.split(r",\s+", names):
            assert name not in found, f"{name} twice"
            found[name] = " ".join(text.split())
    return found


HELPED = [
    Pipeline.open,
    Pipeline.generate,
    Pipeline.stream,
    Pipeline.chat,
    Pipeline.agenerate,
    Pipeline.astream,
]


@pytest.mark.parametrize("function", HELPED)
def test_help_explains_every_parameter_once(function: Callable[..., Any]) -> None:
    names = {*inspect.signature(function).parameters} - {"self", "changes"}
    found = explained(function)
    errors = {name for name in found if name.endswith(("Error", "Unavailable", "TooLong"))}
    assert names == found.keys() - errors
    assert all(len(text) > 8 for text in found.values())


def test_completion_shows_what_programs_need() -> None:
    with Pipeline.open("demo", drafter="none") as pipeline:
        completer = rlcompleter.Completer({"pipeline": pipeline})
        shown = {*completer.attr_matches("pipeline.")}
        assert {"pipeline.generate(", "pipeline.count_tokens(", "pipeline.plan"} <= shown
        for name in Pipeline.hidden_names:
            getattr(pipeline, name)  # it is there all the same
            assert f"pipeline.{name}" not in shown
        assert not [name for name in dir(pipeline) if re.match("_[a-z]", name)]
        assert {"engine", "_queue"} <= {*object.__dir__(pipeline)}  # the control


def test_dir_shows_the_public_names() -> None:
    assert dir(edgedec) == sorted(edgedec.__all__)
    assert {"Pipeline", "Generation", "convert", "plan", "pull", "Library"} <= set(dir(edgedec))
