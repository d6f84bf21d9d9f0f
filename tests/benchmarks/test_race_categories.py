"""Prompts of published models come by category."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.race import texts
from edgedec.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(repository: Path) -> Tokenizer:
    return Tokenizer.load(repository / "models" / "demo" / "target" / "tokenizer.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Both files, in their makers' form."""
    asked = [
        ("writing", 1), ("math", 2), ("coding", 3), ("qa", 4), ("qa", 5), ("rag", 6), ("qa", 7),
    ]  # fmt: skip
    questions = [
        {"question_id": number, "category": category, "turns": [f"Question {number}?", "no"]}
        for category, number in asked
    ]
    functions = [{"task_id": f"F/{n}", "prompt": f"def f{n}(x):\n"} for n in range(3)]
    for name, rows in (("spec_bench/question", questions), ("humaneval/problems", functions)):
        file = tmp_path / f"{name}.jsonl"
        file.parent.mkdir()
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tmp_path


def test_so_many_of_each_and_mt_bench_is_one(
    tokenizer: Tokenizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(texts.SHARED, str(folder))
    found = texts.categories(2, tokenizer, None, 512)
    kinds = [text.kind for text in found]
    assert kinds == ["conversation"] * 2 + ["qa"] * 2 + ["rag"] + ["code"] * 2
    assert found == texts.categories(2, tokenizer, None, 512)
    assert all("no" not in text.text for text in found)
    # More prompts contain fewer, so that a longer run goes on where a shorter one ended.
    assert set(texts.categories(1, tokenizer, None, 512)) < set(found)


def test_a_file_takes_the_place_of_both(tokenizer: Tokenizer, folder: Path) -> None:
    file = folder / "mine.jsonl"
    file.write_text('{"prompt": "One"}\n{"prompt": "Two"}\n', "utf-8")
    found = texts.categories(5, tokenizer, file, 512)
    assert {(text.kind, text.text) for text in found} == {("mine", "One"), ("mine", "Two")}


def test_without_files_it_says_what_to_give(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(texts.SHARED, str(tmp_path))
    with pytest.raises(texts.NoTexts, match=r"give --prompts FILE, or set EDGEDEC_SHARED_DATA"):
        texts.categories(1, tokenizer, None, 512)
    monkeypatch.delenv(texts.SHARED)
    with pytest.raises(texts.NoTexts, match=r"humaneval/problems\.jsonl"):
        texts.categories(1, tokenizer, None, 512)
