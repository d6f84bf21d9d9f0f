"""Environments of peers: made once, made anew where half made, skipped where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_peers import peer

from benchmarks.race.children import Failed
from benchmarks.race.environment import READY, make

# What the build does: leaves a file, and counts.
_BUILD = (
    "Path(request['folder'], 'built').write_text('whole'); "
    "log = Path(request['folder'], '..', 'count'); "
    "log.write_text((log.read_text() if log.exists() else '') + '.')"
)


def test_an_environment_is_made_once_and_anew_where_it_is_half_made(tmp_path: Path) -> None:
    found = peer(tmp_path, requirements=(), build=_BUILD)
    environment = make(found, tmp_path / "work")
    folder, count = Path(environment.folder), tmp_path / "work" / "env" / "count"
    assert environment.python.is_relative_to(folder)
    assert (folder / "built").read_text() == "whole"
    assert make(found, tmp_path / "work") == environment
    assert count.read_text() == "."
    # As an interruption leaves it.
    (folder / READY).unlink()
    (folder / "built").write_text("ha")
    (folder / "left over").touch()
    assert make(found, tmp_path / "work") == environment
    assert count.read_text() == ".."
    assert (folder / "built").read_text() == "whole"
    assert not (folder / "left over").exists()
    # As another version leaves it.
    other = peer(tmp_path, requirements=(), build=_BUILD + "; Path(request['folder'], 'more')")
    make(other, tmp_path / "work")
    assert count.read_text() == "..."


def test_one_that_cannot_be_made_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    found = peer(tmp_path, requirements=(), build="raise OSError('no compiler here')")
    with pytest.raises(Failed, match="OSError: no compiler here"):
        make(found, tmp_path / "work")
    assert not (tmp_path / "work" / "env" / "fake").exists()


def test_packages_that_are_not_to_be_had_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "absent-1.0-py3-none-any.whl"
    found = peer(tmp_path, requirements=(f"absent @ {missing.as_uri()}",))
    with pytest.raises(Failed, match=r"absent-1\.0"):
        make(found, tmp_path / "work")
    assert not (tmp_path / "work" / "env" / "fake").exists()


def test_without_requirements_of_its_own_it_is_this_interpreter(tmp_path: Path) -> None:
    import sys

    environment = make(peer(tmp_path), tmp_path / "work")
    assert (environment.folder, str(environment.python)) == ("", sys.executable)
    assert not (tmp_path / "work").exists()
