"""No module imports itself by way of others, not even for type checking or inside a function."""

from __future__ import annotations

import graphlib

import pytest

grimp = pytest.importorskip("grimp")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    graph = grimp.build_graph("edgedec", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, none if there is no circle."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others(imports: dict[str, set[str]]) -> None:
    assert len(imports) > 100
    assert circle(imports) == []


def test_a_circle_is_found(imports: dict[str, set[str]]) -> None:
    above, below = "edgedec.profiling.rounds", "edgedec.profiling.trial"
    assert below in imports[above]
    assert set(circle({**imports, below: imports[below] | {above}})) >= {above, below}
