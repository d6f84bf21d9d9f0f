"""The prompts of the race."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.race import texts
from edgedec.errors import InputError
from edgedec.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(repository: Path) -> Tokenizer:
    return Tokenizer.load(repository / "models" / "demo" / "target" / "tokenizer.json")


def test_code_and_random_texts_are_the_same_each_time(tokenizer: Tokenizer) -> None:
    for kind in ("code", "unpredictable"):
        found = texts.KINDS[kind](3, tokenizer)
        assert found == texts.KINDS[kind](3, tokenizer)
        assert len({text.digest for text in found}) == 3
        for text in found:
            assert list(text.ids) == tokenizer.encode(text.text)
            assert 1 < len(text.ids) <= texts.LONGEST
            assert not text.text.endswith("\n")


def test_chat_without_its_folder_says_what_to_set(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(texts.SHARED, raising=False)
    with pytest.raises(texts.NoTexts, match="set EDGEDEC_SHARED_DATA"):
        texts.chat(2, tokenizer)
    monkeypatch.setenv(texts.SHARED, str(tmp_path))
    with pytest.raises(texts.NoTexts, match=r"question\.jsonl is missing"):
        texts.chat(2, tokenizer)


def test_chat_reads_first_turns_and_names_a_broken_line(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(texts.SHARED, str(tmp_path))
    file = tmp_path / "spec_bench" / "question.jsonl"
    file.parent.mkdir()
    lines = [{"question_id": n, "turns": [f"Turn {n}?", "Never read."]} for n in range(4)]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = texts.chat(3, tokenizer)
    assert [text.name for text in found] != ["question 0", "question 1", "question 2"]
    assert all("Turn" in text.text and "Never" not in text.text for text in found)
    file.write_text(json.dumps(lines[0]) + '\n{"turns": []}\n', "utf-8")
    with pytest.raises(InputError, match=r"question\.jsonl:2: .*\"turns\""):
        texts.chat(3, tokenizer)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"prompt": "a text"}\n{"prompt": \n', r"own\.jsonl:2: expected a JSON object"),
        ('{"prompt": "a text"}\n\n{"prompt": 3}\n', r"own\.jsonl:3: expected a JSON object"),
        ('{"prompt": "a"}\n{"prompt": "  "}\n', r"own\.jsonl: 2: .*not empty"),
        ('{"messages": [{"role": "user", "content": "x"}]}\n', r"own\.jsonl: 1: .*not empty"),
        ("", r"own\.jsonl: no prompts"),
    ],
)
def test_broken_lines_of_a_prompt_file_are_named(
    tokenizer: Tokenizer, tmp_path: Path, lines: str, said: str
) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(lines, "utf-8")
    with pytest.raises(InputError, match=said):
        texts.from_file(file, 4, tokenizer)


def test_a_prompt_file_without_broken_lines_is_read(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "def f(x):\\n", "id": "f"}\n{"prompt": "one two"}\n', "utf-8")
    found = texts.from_file(file, 4, tokenizer)
    assert [(text.kind, text.name, text.text) for text in found] == [
        ("file", "f", "def f(x):"),
        ("file", "2", "one two"),
    ]
