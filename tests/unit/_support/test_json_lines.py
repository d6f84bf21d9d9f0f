"""A file of JSON objects, one a line: resumed after any death, and never a foreign file's end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgedec._support.json_lines import JsonLines
from edgedec.errors import InputError

ROWS = [{"name": "a", "n": 1}, {"name": "\u2028\ud800", "n": [2.5, None]}, {"name": "c"}]


def opened(path: Path) -> tuple[JsonLines, list[Any]]:
    """The file, and what is in it."""
    found: list[Any] = []
    return JsonLines(path, "name", lambda entry, _: found.append(entry)), found


def written(path: Path) -> bytes:
    lines, _ = opened(path)
    for row in ROWS:
        lines.add(row)
    lines.close()
    return path.read_bytes()


def test_a_file_cut_off_anywhere_keeps_its_whole_lines_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = written(path)
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        lines, found = opened(path)
        assert found == ROWS[: whole[:length].count(b"\n")]
        for row in ROWS[len(found) :]:
            lines.add(row)
        lines.close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("end", ["my diary", '{"id": 7', '{"name": 7', '{"name": "d"}\nx'])
def test_the_end_of_a_foreign_file_is_passed_on_and_kept(tmp_path: Path, end: str) -> None:
    path = tmp_path / "out.jsonl"
    before = written(path) + end.encode()
    path.write_bytes(before)
    lines, found = opened(path)
    lines.close()
    assert found[-1] is None
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [b"[1]", b"\xff", b"{", b"[" * 100_000, b""])
def test_a_line_that_is_no_object_is_named_and_a_refusal_changes_nothing(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "out.jsonl"
    before = written(path) + line + b'\n{"name": "to'
    path.write_bytes(before)

    def refuse(entry: dict[str, Any] | None, where: str) -> None:
        if entry is None:
            raise InputError(where)

    with pytest.raises(InputError, match=r"out\.jsonl:4$"):
        JsonLines(path, "name", refuse)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    before = written(path)
    lines, _ = opened(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"No space left on device: make room .* 3 lines are kept"):
        lines.add({"name": "d"})
    assert path.read_bytes() == before
    lines.close()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_pipe_is_only_written_to() -> None:
    end, begin = os.pipe()
    lines, found = opened(Path(f"/dev/fd/{begin}"))
    lines.add({"name": "a"})
    lines.close()
    os.close(begin)
    with os.fdopen(end, "rb") as stream:
        assert json.loads(stream.read()) == {"name": "a"}
    assert not found


def test_a_line_is_not_glued_to_one_without_an_end(tmp_path: Path) -> None:
    file = tmp_path / "foreign.jsonl"
    file.write_text('{"other": 7}')
    lines = JsonLines(file, "id", lambda *_: None)
    lines.add({"id": "a"})
    lines.add({"id": "b"})
    lines.close()
    assert file.read_text() == '{"other": 7}\n{"id": "a"}\n{"id": "b"}\n'
