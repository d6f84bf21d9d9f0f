"""The section on weights of four bits: every row from the same texts and the same source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_checkpoint

from benchmarks.bundles import Bundles, Suite
from benchmarks.race import texts
from benchmarks.sections import four_bits
from edgedec.compare.records import Recorder, Row

WORDS = "count the ships that passed the tower before noon and write the number down "


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shared"
    for name in ("spec_bench", "humaneval"):
        (folder / name).mkdir(parents=True)
    asked = {"question_id": 1, "turns": [WORDS]}
    (folder / "spec_bench" / "question.jsonl").write_text(json.dumps(asked), "utf-8")
    code = {"prompt": "def ships(log):\n    " + WORDS}
    (folder / "humaneval" / "problems.jsonl").write_text(json.dumps(code), "utf-8")
    monkeypatch.setenv(texts.SHARED, str(folder))
    return folder


def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Row], list[dict[str, Any]]]:
    every = four_bits._models
    chosen = ("edgedec int8", "edgedec auto, rounded to nearest")
    monkeypatch.setattr(
        four_bits, "_models", lambda *more: {name: every(*more)[name] for name in chosen}
    )
    if not (tmp_path / "target").exists():
        tiny_checkpoint(tmp_path / "target", max_position_embeddings=1024)
    records: list[dict[str, Any]] = []
    suite = Suite(Bundles(tmp_path, tmp_path / "work"), tmp_path, 1, threads=1)
    return four_bits.four_bits(suite, Recorder(records.append, "four_bits")), records


@pytest.mark.usefixtures("prompts")
def test_a_row_has_bytes_and_divergence_on_both_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, records = rows(tmp_path, monkeypatch)
    assert [row["model"] for row in found] == ["edgedec int8", "edgedec auto, rounded to nearest"]
    for row in found:
        assert row["weight_bytes"] > 0
        assert 0 < row["chat_kl_nats"] < 0.1
        assert 0 < row["code_kl_nats"] < 0.1
    assert found[0]["code_kl_nats"] < found[1]["code_kl_nats"], "the control: coarser is farther"
    assert {record["text"] for record in records if record["kind"] == "text"} == {"chat", "code"}


def test_without_texts_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(texts.SHARED, raising=False)
    _, records = rows(tmp_path, monkeypatch)
    skipped = [record for record in records if record["kind"] == "skipped"]
    assert [record["name"] for record in skipped] == ["chat", "code"]
    assert all(texts.SHARED in record["reason"] for record in skipped)
