"""Model kinds of one class of session: the contract in whole for one, in short for the others.

The contract tests how a class of session keeps its cache, which does not depend on the model: the
others have a random walk and the test of trees in `make test`, and all of it in the full run.
"""

from collections.abc import Iterable
from typing import Any

import pytest

SHORT = {"test_a_random_walk", "test_a_tree_scores_every_path"}


def again(kinds: Iterable[Any]) -> list[Any]:
    """Mark kinds whose class of session passes the whole contract with another model."""
    another = pytest.mark.another_kind
    return [
        pytest.param(*kind.values, marks=[another, *kind.marks], id=kind.id)
        if hasattr(kind, "marks")
        else pytest.param(kind, marks=another)
        for kind in kinds
    ]


def first(kinds: Iterable[Any]) -> list[Any]:
    """Leave the first kind as it is, and mark the others."""
    one, *others = kinds
    return [one, *again(others)]


def in_full(values: Iterable[Any], kept: int = 1) -> list[Any]:
    """Leave the first values as they are: tests with the others wait for the full run."""
    return _marked(values, kept, [pytest.mark.full])


def nightly(values: Iterable[Any], kept: int = 1) -> list[Any]:
    """Leave the first values as they are: tests with the others are the last that are run."""
    return _marked(values, kept, [pytest.mark.slow, pytest.mark.nightly])


def _marked(values: Iterable[Any], kept: int, marks: list[Any]) -> list[Any]:
    found = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*value, marks=marks if index >= kept else ())
        for index, value in enumerate(found)
    ]


def each_once(values: Iterable[Any], others: Iterable[Any], kept: int | None = None) -> list[Any]:
    """Cross two lists: `make test` has each value with one of the others, in turn."""
    firsts, seconds = list(values), list(others)
    pairs = [
        (value, seconds[(number + by) % len(seconds)])
        for by in range(len(seconds))
        for number, value in enumerate(firsts)
    ]
    return in_full(pairs, len(firsts) if kept is None else kept)


def only_in_full_runs(item: pytest.Item) -> bool:
    """Whether a test of another kind waits for the full run."""
    if item.get_closest_marker("another_kind") is None:
        return False
    return getattr(item, "originalname", item.name) not in SHORT
