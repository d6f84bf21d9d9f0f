"""The figures of ``published_chats``: medians of turns, means of prompts, and the worst of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.sections import published_chats as section
from benchmarks.sections.published_chats import AUTO, EXACT, summaries
from edgedec.compare.drafters import PLAIN
from edgedec.compare.records import Recorder, Row


def test_a_prompt_counts_by_the_medians_of_its_turns() -> None:
    seconds = {
        # One turn of plain decoding was disturbed.
        ("chat", "1"): {PLAIN: [1.0, 9.0, 1.0], EXACT: [1.25] * 3, AUTO: [0.5, 0.5, 0.5]},
        ("chat", "2"): {PLAIN: [1.0] * 3, EXACT: [1.0] * 3, AUTO: [1.25, 1.25, 0.1]},
        ("code", "1"): {PLAIN: [1.0] * 3, EXACT: [1.0] * 3, AUTO: [1.0] * 3},
    }
    chat, code, every = summaries(seconds)
    assert (chat["text"], chat["prompts"], chat["mean"], chat["worst"]) == ("chat", 2, 1.4, 0.8)
    assert chat[EXACT] == pytest.approx(0.9)
    assert chat["drafts alone"] == pytest.approx((2.5 + 0.8) / 2)
    assert code["mean"] == code["worst"] == 1
    assert (every["text"], every["worst"]) == ("all", 0.8)
    assert every["mean"] == pytest.approx((2.0 + 0.8 + 1.0) / 3)


def test_each_way_decodes_each_prompt_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0")
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text("".join(json.dumps({"id": str(n), "prompt": "a b c"}) + "\n" for n in "12"))
    monkeypatch.setattr(section, "_TOKENS", 24)  # more than one pass's
    monkeypatch.setattr(section, "_CONTEXT", 128)
    monkeypatch.setattr(section, "_models", lambda suite, file: {"file": file})
    suite = Suite(
        Bundles(tmp_path, tmp_path, {"target": file}), tmp_path, 2, threads=1, file=prompts
    )
    records: list[Row] = []
    rows = section.published_chats(suite, Recorder(records.append, "published_chats"))
    runs = [one for one in records if one["kind"] == "run"]
    assert len(runs) == 2 * 2 * 3 * section.REPEATS
    assert {one["way"] for one in runs} == {PLAIN, EXACT, AUTO}
    assert {row["text"] for row in rows} == {"mine", "all"}
    assert all(row["mean"] >= row["worst"] > 0 for row in rows)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    suite = Suite(Bundles(tmp_path, tmp_path, {"target": tmp_path}), tmp_path, 1)
    with pytest.raises(Unusable, match="GGUF"):
        section.published_chats(suite, Recorder(lambda row: None, "published_chats"))
