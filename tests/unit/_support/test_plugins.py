"""Entry points are found wherever Python finds them; where there are none, little is imported."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import installed
import pytest

from edgedec._support import plugins

GROUP = "edgedec.tried"


def folder(path: Path) -> str:
    installed.write(path, "tried", {"tried.py": "VALUE = 7"}, {GROUP: {"one": "tried:VALUE"}})
    return str(path)


def egg_info(path: Path) -> str:
    folder(path)
    (path / "tried-1.0.dist-info").rename(path / "tried.egg-info")
    return str(path)


def egg(path: Path) -> str:
    inside = path / "tried.egg"
    folder(inside)
    (inside / "tried-1.0.dist-info").rename(inside / "EGG-INFO")
    (inside / "EGG-INFO/METADATA").rename(inside / "EGG-INFO/PKG-INFO")
    return str(inside)


def archive(path: Path) -> str:
    folder(path / "there")
    with zipfile.ZipFile(path / "tried.zip", "w") as made:
        for file in (path / "there").rglob("*"):
            made.write(file, file.relative_to(path / "there"))
    return str(path / "tried.zip")


@pytest.mark.parametrize("make", [folder, egg_info, egg, archive])
def test_a_package_is_found(
    make: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(make(tmp_path))
    (point,) = plugins.points(GROUP)
    assert point.value() == (7, "")
    assert plugins.points("edgedec.other") == []


def test_one_in_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "missing"), *sys.path])
    assert [point.name for point in plugins.points(GROUP)] == ["one"]


def test_one_that_only_a_finder_knows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import DistributionFinder, MetadataPathFinder

    class Finder(DistributionFinder):
        def find_spec(self, *_: object) -> None:
            return None

        def find_distributions(self, context=DistributionFinder.Context()):  # noqa: B008
            there = DistributionFinder.Context(name=context.name, path=[folder_there])
            return MetadataPathFinder.find_distributions(there)

    folder_there = folder(tmp_path)
    assert plugins.points(GROUP) == []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert [point.name for point in plugins.points(GROUP)] == ["one"]


@pytest.mark.parametrize("there", [False, True])
def test_the_library_is_imported_where_a_package_adds_something(
    there: bool, tmp_path: Path
) -> None:
    if there:
        folder(tmp_path)
    code = (
        "import sys; sys.path.append(sys.argv[1]); from edgedec._support import plugins\n"
        f"print(len(plugins.points({GROUP!r})), 'importlib.metadata' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(int(there)), str(there)]
