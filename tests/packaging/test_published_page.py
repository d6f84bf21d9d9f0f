"""The page's tables are those of the list of drafts and of the recorded passes."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edgedec.library.published import DRAFTS, HEAD, TARGETS, drafts_for


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    file = repository / "tools" / "published_page.py"
    found = importlib.util.spec_from_file_location("published_page", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["published_page"] = module
    found.loader.exec_module(module)
    return module


def test_the_pages_have_the_tables_that_the_tool_makes(tool: ModuleType, repository: Path) -> None:
    pages = {name: (repository / "docs" / name).read_text("utf-8") for name in tool.PARTS}
    assert {name: tool.page(name) for name in pages} == pages
    assert all(f"`{draft.name}`" in pages["guides/published-heads.md"] for draft in DRAFTS)
    assert "**Calculated, not measured.**" in pages["guides/published-heads.md"]


def test_another_record_gives_another_table(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    page = tool.page("guides/published-heads.md")
    text = tool.RECORDS.read_text("utf-8")
    changed = re.sub(r'"T\(4\)_s": 0\.0243', '"T(4)_s": 0.0343', text)
    assert changed != text
    (tmp_path / "kernels.jsonl").write_text(changed)
    monkeypatch.setattr(tool, "RECORDS", tmp_path / "kernels.jsonl")
    assert tool.page("guides/published-heads.md") != page


def test_a_page_without_a_place_is_refused(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "guides" / "published-heads.md").write_text("# Heads\n")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    with pytest.raises(LookupError, match="no place for drafts"):
        tool.page("guides/published-heads.md")


def test_sizes_of_heads_follow_from_the_shapes(tool: ModuleType) -> None:
    for target in TARGETS:
        for draft in drafts_for([target]):
            if draft.kind == HEAD and not draft.unread:
                shape = tool.SHAPES[target.name]
                size = shape.head(target.hidden) + shape.fusion(target.hidden)
                assert draft.calculated
                assert draft.millions == round(size / 1e6)


@pytest.mark.parametrize(
    ("tokens", "length", "share", "expected"),
    [(1.0, 1, 0.0, 1 / 1.5), (2.0, 1, 0.0, 2 / 1.5), (2.0, 2, 0.5, 2 / (2 + 0.5 * 2.5))],
)
def test_the_formula(
    tool: ModuleType, tokens: float, length: int, share: float, expected: float
) -> None:
    costs = {1: 1.0, 2: 1.5, 4: 2.5}
    assert tool.speed_up(tokens, length, share, costs) == pytest.approx(expected)


def test_between_measured_rows_costs_are_in_proportion(tool: ModuleType) -> None:
    costs = {1: 1.0, 2: 1.5, 4: 2.5}
    found = [tool.cost(costs, rows) for rows in (1, 1.5, 2, 3, 4)]
    assert found == pytest.approx([1, 1.25, 1.5, 2, 2.5])
    with pytest.raises(ValueError, match="empty"):
        tool.cost(costs, 5)  # nothing was measured there


def test_drafts_of_no_worth_are_below_one(tool: ModuleType) -> None:
    """The control: a head that is never right only costs."""
    for kernels in tool.KERNELS:
        assert tool.speed_up(1.0, 3, 0.05, tool.row_costs(kernels)) < 1


def test_published_figures_are_plausible(tool: ModuleType) -> None:
    names = {one.name for one in TARGETS}
    for one in tool.MEASURED:
        assert one.target in names
        assert one.source in tool.SOURCES
        for tokens in one.tokens.values():
            assert [*tokens.values()] == sorted(tokens.values())
            assert all(1 < each <= length + 1 for length, each in tokens.items())
