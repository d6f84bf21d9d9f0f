"""The page of submissions: untrusted files, escaped, and refused ones named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from benchmarks.report.submissions import main, page
from edgedec.compare.submission import RULES, summarised


def written(folder: Path, name: str, *, cpu: str = "A processor", auto_s: float = 0.1) -> Path:
    rows = [
        {"side": side, "prompt": "p", "repeat": repeat, "tpot_s": seconds, "identical": True}
        for repeat in range(3)
        for side, seconds in (("plain", 0.2), ("auto", auto_s))
    ]
    found: dict[str, Any] = {
        "submission": 1, "issued": "2026-11-28T00:00:00Z", "rules": list(RULES),
        "about": {"model": "m", "sampling": "greedy"},
        "machine": {"system": "Linux x86_64", "cpu": {"name": cpu}},
        "versions": {"edgedec": "0.1.0"}, "state": {"power": "battery"},
        "rows": rows, "summary": summarised(rows),
    }  # fmt: skip
    file = folder / name
    file.write_text(json.dumps(found), "utf-8")
    return file


def test_each_file_is_a_row_and_no_two_are_divided(tmp_path: Path) -> None:
    files = [written(tmp_path, "a.json"), written(tmp_path, "b.json", auto_s=0.4)]
    text = page(files)
    assert "2.00x" in text
    assert "0.50x" in text
    assert "4.00x" not in text
    assert text.count("on battery") == 2
    assert "Not shown" not in text


def test_what_others_write_is_escaped_and_broken_files_are_named(tmp_path: Path) -> None:
    written(tmp_path, "a.json", cpu="<script>alert(1)</script>")
    (tmp_path / "broken.json").write_text("{", "utf-8")
    changed = json.loads(written(tmp_path, "c.json").read_text("utf-8"))
    changed["summary"]["median_ratio"] = 9.0
    (tmp_path / "c.json").write_text(json.dumps(changed), "utf-8")
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, [str(tmp_path), "--html", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text("utf-8")
    assert "<script" not in text
    assert "&lt;script" in text
    assert "9.00x" not in text
    assert "broken.json: expected a JSON object" in text
    assert "c.json: summary" in text


def test_an_empty_folder_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(tmp_path), "--html", str(tmp_path / "x.html")])
    assert done.exit_code != 0
    assert "has no *.json" in done.output
    assert not (tmp_path / "x.html").exists()
