"""Signatures list every option by name, with its type and its default, as editors show them."""

from __future__ import annotations

import inspect
import re
import rlcompleter
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any, TypedDict

import pytest

import edgedec
from edgedec import GenerateOptions, OpenOptions, Pipeline, SamplingParams
from edgedec._support.signatures import arguments_of, lists
from edgedec.functions import ConvertOptions, PlanOptions
from edgedec.generation.keywords import TextOptions, with_changes
from edgedec.loading.options import OpenChanges

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


def test_what_is_said_is_what_the_declaration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = explained(Pipeline.generate)
    for kind, names in ((GenerateOptions, ("drafter", "stop")), (SamplingParams, ("top_k",))):
        declared = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
        assert all(f"{name}: {said[name]}" in declared for name in names)
    assert said["presence_penalty"] == said["frequency_penalty"]
    assert "One of f32, f16, " in explained(Pipeline.open)["kv"]

    # The control: one that no group names is missed.
    @lists(_Some, {}, groups={"Some": ("where",)}, texts={"where": "the place of it all"})
    def call(**options: Any) -> None:
        """One."""

    assert explained(call) == {"where": "the place of it all"}
    assert {*inspect.signature(call).parameters} - explained(call).keys() == {
        "how",
        "former",
        "options",
    }


def test_arguments_are_those_of_another_by_its_own_names() -> None:
    def first(one: int, two: int) -> None:
        """First.

        Args:
            one: the one,
                in two lines.
            two: the other.

        Raises:
            ValueError: never.

        """

    @arguments_of(first)
    def second(two: int) -> None:
        """Second.

        Raises:
            OSError: always.

        """

    assert second.__doc__ == (
        "Second.\n\nArgs:\n    two: the other.\n\nRaises:\n    OSError: always."
    )


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
