"""The reference of the Python interface has every public name, and reads docstrings rightly."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import edgedec

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools"))

import api_page


@pytest.fixture(scope="module")
def page() -> str:
    return api_page.page()


def test_every_public_name_has_a_section(page: str) -> None:
    for name in set(edgedec.__all__) - {"__version__"}:
        assert f"\n### {name}\n" in page, name


def public_methods(kind: type) -> set[str]:
    found = (one for above in kind.__mro__ for one in vars(above).items())
    return {
        name
        for name, value in found
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, (classmethod, property)))
    }


def test_every_method_of_a_pipeline_and_of_its_texts_is_described(page: str) -> None:
    for kind in (edgedec.Pipeline, edgedec.AsyncStream, edgedec.Generation, edgedec.Stream):
        for name in public_methods(kind) - api_page.HIDDEN - getattr(kind, "hidden_names", set()):
            assert f"\n#### {kind.__name__}.{name}\n" in page, name


def test_a_method_without_a_docstring_would_be_missed() -> None:
    class Some:
        __module__ = "edgedec.some"

        def told(self) -> None:
            """It is described."""

        def untold(self) -> None: ...

    assert [name for name, _ in api_page.members(Some)] == ["told"]
    assert public_methods(Some) == {"told", "untold"}


def test_options_are_listed_once(page: str) -> None:
    assert page.count("    repetition_penalty: float = 1.0,\n") == 2  # of a text, of SamplingParams
    assert page.count("    draft_device: str | None = None,\n") == 1
    assert "`changes` are those of `Pipeline.stream`.\n" in page


def example(first: str, *, second: int = 3) -> dict[str, Any]:
    """Say one thing,
    and another in ``code``.

    An example::

        for one in first:
            print(one)

    Args:
        first: what it is,
            on two lines.
        second, third: more.

    What follows the section is prose.

    Raises:
        ValueError: it is wrong.
        TypeError, KeyError.

    """


def test_a_docstring_becomes_markdown() -> None:
    assert list(api_page.described(example)) == [
        "Say one thing, and another in `code`.\n",
        "An example\n",
        "```python\nfor one in first:\n    print(one)\n```\n",
        "Arguments:\n",
        "- `first`: what it is, on two lines.\n- `second`, `third`: more.\n",
        "What follows the section is prose.\n",
        "Raises:\n",
        "- `ValueError`: it is wrong.\n- TypeError, KeyError.\n",
    ]
    signature = inspect.signature(example)
    expected = "```python\nexample(first: str, *, second: int = 3) -> dict[str, Any]\n```\n"
    assert api_page.signed("example", signature) == expected


@pytest.mark.parametrize(
    ("annotation", "written"),
    [
        (str | None, "str | None"),
        ("Unpack[edgedec.some.Options]", "Unpack[Options]"),
        (dict[str, Path], "dict[str, Path]"),
    ],
)
def test_types_are_written_without_their_modules(annotation: Any, written: str) -> None:
    assert api_page.typed(annotation) == written
