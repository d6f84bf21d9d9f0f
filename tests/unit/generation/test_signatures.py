"""Signatures list every option by name, with its type and its default, as editors show them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any, TypedDict

import pytest

import edgedec
from edgedec import GenerateOptions, OpenOptions, Pipeline
from edgedec._support.signatures import lists
from edgedec.functions import ConvertOptions, PlanOptions
from edgedec.generation.keywords import TextOptions, with_changes
from edgedec.loading.option_types import OpenChanges

# Functions, the types of their options, and names that are accepted and not listed.
OF_A_TEXT = {"timeout_s", "sampling"}
TABLE: list[tuple[Callable[..., Any], type, set[str]]] = [
    (Pipeline.open, OpenChanges, {"load", "draft_load", "providers", "kv_type"}),
    (OpenOptions, OpenChanges, {"load", "draft_load", "providers", "kv_type"}),
    (Pipeline.generate, TextOptions, OF_A_TEXT),
    (Pipeline.stream, TextOptions, OF_A_TEXT),
    (Pipeline.chat, TextOptions, OF_A_TEXT),
    (Pipeline.agenerate, TextOptions, OF_A_TEXT),
    (Pipeline.astream, TextOptions, OF_A_TEXT),
    (edgedec.convert, ConvertOptions, set()),
    (edgedec.plan, PlanOptions, set()),
]
Signed = tuple[Callable[..., Any], type, set[str]]


def unlisted(function: Callable[..., Any], options: type) -> set[str]:
    """Options without a parameter of their own."""
    listed = inspect.signature(function).parameters.values()
    named = {one.name for one in listed if one.kind is Parameter.KEYWORD_ONLY}
    return set(options.__annotations__) - named


@pytest.mark.parametrize(("function", "options", "hidden"), TABLE)
def test_every_option_is_listed(function: Any, options: type, hidden: set[str]) -> None:
    assert unlisted(function, options) == hidden


def test_an_option_that_is_not_listed_would_be_noticed() -> None:
    def plain(prompt: str, **changes: Any) -> None:
        """Takes all of them and says nothing."""

    assert unlisted(plain, TextOptions) == set(TextOptions.__annotations__)


def test_what_is_shown() -> None:
    shown = str(inspect.signature(Pipeline.open))
    assert shown.startswith("(bundle: str | pathlib.Path, options: ")
    assert "memory: int | str | None = None, " in shown
    assert "draft_length: int | str = 'auto', " in shown
    shown = str(inspect.signature(Pipeline.generate))
    assert "max_new_tokens: int = 128, temperature: float = 0.0, " in shown
    assert "timeout: float | None = None, " in shown
    assert "wait: bool = True, " in shown


def listed_defaults(function: Callable[..., Any], options: type) -> dict[str, Any]:
    listed = inspect.signature(function).parameters
    return {name: listed[name].default for name in options.__annotations__ if name in listed}


def test_the_listed_defaults_are_the_defaults() -> None:
    found = listed_defaults(Pipeline.generate, TextOptions)
    assert with_changes(GenerateOptions(), found) == GenerateOptions()
    found = listed_defaults(Pipeline.open, OpenChanges)
    of_both = {name: value for name, value in found.items() if not name.startswith("draft_")}
    of_draft = {"draft_length", "draft_depth", "draft_context", "draft_format"}
    assert OpenOptions(**of_both, **{n: found[n] for n in of_draft}) == OpenOptions()
    # Options of the draft alone are those of the target unless they are given.
    assert {v for n, v in found.items() if n not in of_both and n not in of_draft} == {None, ()}


def test_names_that_are_not_listed_are_accepted() -> None:
    bound = inspect.signature(Pipeline.generate).bind(None, "x", timeout_s=3, draft="none")
    assert bound.kwargs == {"timeout_s": 3, "draft": "none"}


class _Some(TypedDict, total=False):
    where: Path
    how: str
    former: int


def test_a_function_keeps_its_own_parameters() -> None:
    @lists(_Some, {"how": "quick"}, without=("former",))
    def call(first: Sequence[int], *, second: Unknown = 3, **options: Any) -> None:  # type: ignore[name-defined]  # noqa: F821
        """One."""

    found = inspect.signature(call)
    assert list(found.parameters) == ["first", "second", "where", "how", "options"]
    assert found.parameters["first"].annotation == Sequence[int]
    assert found.parameters["second"].annotation == "Unknown"
    assert found.parameters["where"].default is None
    assert (found.parameters["how"].annotation, found.parameters["how"].default) == (str, "quick")
    assert call.__doc__ == "One."


def test_dir_shows_the_public_names() -> None:
    assert dir(edgedec) == sorted(edgedec.__all__)
    assert {"Pipeline", "Generation", "convert", "plan", "pull", "Library"} <= set(dir(edgedec))
