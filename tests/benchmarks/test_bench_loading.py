"""The bench of loading: each load is a process that says what it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sections import loading
from edgedec.errors import EdgedecError
from edgedec.models.demo import BUNDLE


def test_two_loads_say_what_they_hold(tmp_path: Path) -> None:
    first, second = loading._load(BUNDLE, tmp_path / "cache", 2)
    assert first["logits"] == second["logits"]
    assert first["load_s"] > 0
    if first["held"]:
        assert first["held"]["proportional"] > 0
    assert (tmp_path / "cache" / "edgedec" / "opened-paddings.json").exists()


def test_a_load_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(EdgedecError, match="a load failed"):
        loading._load(tmp_path, tmp_path / "cache", 1)


def test_a_row_is_what_the_median_load_added(tmp_path: Path) -> None:
    from edgedec.compare.records import recording

    def found(seconds: float, private: int, proportional: int) -> dict[str, object]:
        before = {"private": 10, "mapped": 5, "reclaimable": 5, "proportional": 12}
        held = {"private": private, "mapped": 25, "reclaimable": 15, "proportional": proportional}
        return {"load_s": seconds, "before": before, "held": held}

    alone = [found(0.1, 30, 40), found(0.9, 90, 40), found(0.2, 40, 40)]
    with recording(tmp_path, "loading") as recorder:
        row = loading._row("a way", alone, [found(1.0, 0, 22), found(1.0, 0, 32)], recorder)
    assert row == {
        "way": "a way",
        "load_s": 0.2,
        "private_bytes": 30,
        "mapped_bytes": 20,
        "reclaimable_bytes": 10,
        "proportional_bytes_of_two": 15,
    }
