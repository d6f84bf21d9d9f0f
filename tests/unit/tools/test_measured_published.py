"""The page of published models has what its record has, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def tool(repository: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(
        "measured_published", repository / "tools" / "measured_published.py"
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def summary(way: str, text: str, speed: float, ratio: float | None, **more: Any) -> dict[str, Any]:
    over = None if ratio is None else {"middle": ratio, "low": ratio, "high": ratio}
    return {
        "kind": "summary", "model": "smollm2", "way": way, "text": text, "temperature": 0.0,
        "runs": 2, "tokens_per_second": {"middle": speed, "low": 1, "high": 9}, "over_plain": over,
        "worst": None if ratio is None else ratio - 0.1, "tokens_per_pass": ratio,
        "acceptance": 0.5, "same": None if ratio is None else 1, "compared": ratio and 2, **more,
    }  # fmt: skip


RECORD = [
    {"kind": "machine", "time": "2026-11-28T01:02:03Z", "cpu": "A processor",
     "settings": {"threads": 2, "tokens": 64}},
    {"kind": "skipped", "model": "smollm2", "name": "openvino", "reason": "no such package"},
    summary("edgedec gguf-file auto", "qa", 30.0, 2.0),  # measured again below
    summary("edgedec gguf-file plain", "qa", 20.0, None),
    summary("edgedec gguf-file auto", "qa", 24.0, 1.2),
    summary("edgedec gguf-file auto", "rag", 40.0, 1.6),
    summary("edgedec gguf-file plain", "rag", 25.0, None, temperature=0.2),
    summary("edgedec int8 auto", "rag", 99.0, 9.9, model="gemma3"),
]  # fmt: skip


@pytest.fixture
def record(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "published.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in RECORD), "utf-8")
    monkeypatch.setattr(tool, "RECORDS", file)
    return file


@pytest.mark.usefixtures("record")
def test_a_line_for_each_way_and_a_column_for_each_category(tool: ModuleType) -> None:
    made = tool.tables("smollm2").splitlines()
    assert "| edgedec gguf-file auto | 32 | 1.4 | 1.1 | 1.4 | 0.5 | 2 of 4 |" in made
    assert "| edgedec gguf-file plain | 20 | | | | 0.5 | |" in made
    assert "| way | qa | rag |" in made
    assert "| edgedec gguf-file auto | 1.20 (1.10) | 1.60 (1.50) |" in made
    assert [line for line in made if line.startswith(("Greedily", "At"))][2:] == [
        "At temperature 0.2, all categories:",
        "At temperature 0.2, speed over its own plain decoding (worst prompt):",
    ]
    assert "9.9" in tool.tables("gemma3")
    assert tool.about() == "- 2026-11-28: A processor, 2 threads, 64 tokens a text."
    assert tool.skipped() == "- smollm2 openvino: no such package"


def test_another_record_gives_another_table(tool: ModuleType, record: Path) -> None:
    """The control."""
    before = tool.tables("smollm2")
    record.write_text(record.read_text("utf-8").replace("24.0", "26.0"), "utf-8")
    assert tool.tables("smollm2") != before


def test_without_a_record_it_says_so(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "RECORDS", tmp_path / "none.jsonl")
    assert {tool.tables("smollm2"), tool.about(), tool.skipped()} == {tool.NONE}


def test_the_page_is_what_the_record_says(tool: ModuleType, repository: Path) -> None:
    page = (repository / "docs" / "measured" / "published.md").read_text("utf-8")
    for part, made in tool.PARTS.items():
        start = f"<!-- {part}: written by make help-pages -->\n\n"
        end = f"\n\n<!-- end of {part} -->"
        assert page.split(start)[1].split(end)[0] == made()
