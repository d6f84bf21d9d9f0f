"""`edgedec cache`: what is kept is listed with its size, and removed, and nothing else is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from profiles import MACHINE, PAIR, WORK

from edgedec.planning import remembered
from edgedec.planning.choose import decide
from edgedec.profiling import store
from edgedec.profiling.store import Identity

HERE = Identity("demo", MACHINE, "a bundle", {})


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    profiles, caches = tmp_path / "profiles", tmp_path / "caches" / "edgedec"
    monkeypatch.setenv("EDGEDEC_CACHE", str(profiles))
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches.parent))
    return profiles, caches


@pytest.fixture
def full(folders: tuple[Path, Path]) -> list[Path]:
    """A profile and its plan, checks, and a file that was not finished."""
    profiles, caches = folders
    assert store.write(HERE, PAIR)
    assert remembered.remember(decide(PAIR, WORK), HERE)
    caches.mkdir(parents=True)
    for name in ("opened-gguf.json", "opened-tokenizers.json"):
        (caches / name).write_text('{"format": 1}')
    (profiles / ".edgedec-0123456789ab").write_text("half")
    return [path for folder in folders for path in folder.iterdir()]


def test_nothing_is_kept_at_first(run: Callable, folders: tuple[Path, Path]) -> None:
    assert run("cache").stdout == "Kept: 0 files, 0 bytes.\n"
    assert run("cache", "--clear").stdout == "Removed: 0 files, 0 bytes.\n"


def test_what_is_kept_is_listed(run: Callable, full: list[Path]) -> None:
    shown = run("cache").stdout
    assert "the target + the draft: " in shown
    assert shown.count("written by an earlier version") == 2
    assert "not finished" in shown
    assert "Kept: 5 files" in shown
    listed = json.loads(run("cache", "--json").stdout)["files"]
    assert {one["path"] for one in listed} == {str(path) for path in full}
    assert [one["kind"] for one in listed] == [
        *("plan", "profile", "checks", "checks", "leftover"),
    ]
    assert all(one["size_bytes"] == Path(one["path"]).stat().st_size for one in listed)


def test_clear_removes_it_and_leaves_what_others_put_there(
    run: Callable, full: list[Path], folders: tuple[Path, Path], tmp_path: Path
) -> None:
    profiles, caches = folders
    others = [
        profiles / "notes.json", profiles / "0123.json", caches / "opened-x.json.bak",
        profiles / f"{'a' * 32}.json.old", profiles / ".profile-short", caches / "manifest.json",
    ]  # fmt: skip
    for path in others:
        path.write_text("of another program")
    kept_link, aim = profiles / f"{'b' * 32}.json", tmp_path / "aim.json"
    aim.write_text("beyond the folder")
    kept_link.symlink_to(aim)
    (profiles / f"{'c' * 32}.plan.json").mkdir()
    assert "Removed: 5 files" in run("cache", "--clear").stdout
    assert not any(path.exists() for path in full)
    assert all(path.read_text() == "of another program" for path in others)
    assert kept_link.is_symlink()
    assert aim.read_text() == "beyond the folder"
    assert (profiles / f"{'c' * 32}.plan.json").is_dir()


@pytest.mark.parametrize("content", ["{}", '{"url": "of another program"}', "[1]"])
@pytest.mark.parametrize("name", [f"{'d' * 32}.json", f"{'d' * 32}.plan.json"])
def test_json_of_another_program_with_such_a_name_stays(
    run: Callable, full: list[Path], folders: tuple[Path, Path], name: str, content: str
) -> None:
    foreign = folders[0] / name
    foreign.write_text(content)
    assert "Removed: 5 files" in run("cache", "--clear").stdout
    assert foreign.read_text() == content
    assert not any(path.exists() for path in full)


def test_what_is_damaged_or_old_is_listed_and_removed_as_well(
    run: Callable, full: list[Path], folders: tuple[Path, Path]
) -> None:
    for path in full:
        path.write_bytes(b"\x1b[2J{")
    shown = run("cache").stdout
    assert "\x1b" not in shown
    assert "damaged" in shown
    run("cache", "--clear")
    assert not any(path.exists() for path in full)


def test_without_a_home_nothing_is_kept(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("EDGEDEC_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert run("cache").stdout == "Kept: 0 files, 0 bytes.\n"
