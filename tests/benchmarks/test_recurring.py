"""The section on drafts from earlier texts: an agent's session, and who takes part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import demo_head
import pytest

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import recurring as section
from edgedec.compare.records import recording
from edgedec.models.demo import BUNDLE


def test_a_session_is_the_same_each_time_and_its_files_come_again() -> None:
    one = section.session(12)
    assert one == section.session(12)
    assert one != section.session(12, seed=1)
    files = [name.partition(": ")[2] for name, _ in one]
    assert 2 <= len(set(files)) <= len(section._FILES) < len(files)


@pytest.mark.parametrize("keeps", [True, False])
def test_earlier_texts_are_drafted_from_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """A twin whose clients all keep nothing is told from the section by its records."""
    monkeypatch.setattr(section, "_TOKENS", 24)
    monkeypatch.setattr(section, "_DRAFTERS", ("suffix",))
    if not keeps:
        alone = section._Client
        monkeypatch.setattr(section, "_Client", lambda pipeline, _: alone(pipeline, None))
    bundles = Bundles(demo_head.MODELS, tmp_path / "work", {"target": BUNDLE}, grows=False)
    suite = Suite(bundles, tmp_path / "out", 2, threads=1)
    monkeypatch.setattr(Suite, "options", lambda self, **given: fixed(given))
    with recording(tmp_path / "out", "recurring") as recorder:
        rows = section.recurring(suite, recorder)
    assert {row["texts"] for row in rows} == {"a session", "a session, T 0.7", "never again"}
    names = {row["candidate"] for row in rows}
    assert names == {section.PLAIN, "suffix", section._FORGETFUL}
    kept = drafted(tmp_path / "out" / "recurring.jsonl")
    assert kept[section._FORGETFUL] == kept[section.PLAIN] == 0
    assert (kept["suffix"] > 0) == keeps


def fixed(given: dict[str, Any]) -> Any:
    """Options with which drafts do not depend on measured time."""
    from edgedec.loading.options import OpenOptions

    length = {} if given.get("drafter") == "none" else {"draft_length": 3}
    return OpenOptions(threads=1, plan="none", **length, **given)


def drafted(file: Path) -> dict[str, int]:
    """Tokens that each candidate had accepted from earlier texts."""
    runs = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    found: dict[str, int] = {}
    for run in (run for run in runs if run.get("kind") == "run"):
        name = run["candidate"]
        found[name] = found.get(name, 0) + run["sources"].get("suffix", 0)
    return found
