"""The section on everything that drafts, for a given target: who takes part, and whose figures."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import demo_head
import pytest

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import drafts as section
from edgedec.compare.records import recording

ASKED = [
    {"question_id": n, "category": kind, "turns": [text]}
    for n, (kind, text) in enumerate(
        [
            ("sums", "1 + 1"),
            ("sums", "2 + 2"),
            ("lists", "def a(): return b"),
            ("sums", "def add(a"),
        ]
    )
]


def test_only_what_the_bundle_has_drafts() -> None:
    assert section.drafters(["target"]) == ("lookup", "auto")
    assert section.drafters(["target", "draft"]) == ("lookup", "model", "hybrid", "auto")
    assert "headed" in section.drafters(["target", "head"])
    assert "model" not in section.drafters(["target", "head"])


@pytest.mark.parametrize(
    ("dims", "count"),
    [({}, 2), ({"kv_layers": 1}, 1), ({"kv_layers": 1, "kv_channels": 64}, 1)],
)
def test_openvino_is_left_out_where_it_refuses(dims: dict[str, int], count: int) -> None:
    assert len(section.kernels_of({"target": {"dims": dims}})) == count


def suite(tmp_path: Path, target: Path, file: Path | None, prompts: int = 1) -> Suite:
    bundles = Bundles(demo_head.MODELS, tmp_path / "work", {"target": target}, grows=False)
    return Suite(bundles, tmp_path / "out", prompts, threads=1, file=file)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in ASKED), "utf-8")
    return file


def test_each_category_gives_its_first_questions(tmp_path: Path, questions: Path) -> None:
    found = section.asked(suite(tmp_path, tmp_path, questions, prompts=2))
    assert {kind: [one.id for _, one in of] for kind, of in found.items()} == {
        "sums": ["0", "1"], "lists": ["2"],
    }  # fmt: skip
    assert [*section.asked(suite(tmp_path, tmp_path, None))] == ["chat"]


@pytest.mark.parametrize("given", [True, False])
def test_figures_are_those_of_their_own_texts(
    tmp_path: Path, questions: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """As many code prompts as chats: the last runs are not those of both."""
    monkeypatch.setattr(section, "_KERNELS", ("onnxruntime",))
    monkeypatch.setattr(section, "_TOKENS", 32)
    file = questions if given else None
    measured = suite(tmp_path, demo_head.bundle(), file)
    with recording(tmp_path / "out", "drafts") as recorder:
        rows = section.drafts(measured, recorder)
    kinds = ["sums", "lists"] if given else ["code", "chat"]
    assert {row["texts"] for row in rows} == set(kinds)
    assert {row["T"] for row in rows} == {0.0, 0.2, 0.7}
    names = section.drafters(["target", "head"])
    assert {row["candidate"] for row in rows} == {"plain", *names}
    runs: list[dict[str, Any]] = recorder.runs
    count = len(names) + 1
    assert len(runs) == 3 * 2 * count
    for case, T in enumerate((0.0, 0.2, 0.7)):
        for place, kind in enumerate(kinds):
            own = runs[(2 * case + place) * count :][:count]
            for row in rows:
                if (row["T"], row["texts"]) == (T, kind):
                    mine = [r for r in own if r["candidate"] == row["candidate"]]
                    assert row["block_efficiency"] == mean(r["block_efficiency"] for r in mine)
                    drafted = max(1, sum(r["drafted_tokens"] for r in mine))
                    assert row["drafted_ms"] == 1000 * sum(r["draft_s"] for r in mine) / drafted
    # Or the figures of other texts would do as well: a measured time is another for each.
    shown = {(row["T"], row["candidate"], row["texts"]): row["drafted_ms"] for row in rows}
    assert any(shown[0.0, name, kinds[0]] != shown[0.0, name, kinds[1]] for name in names)
