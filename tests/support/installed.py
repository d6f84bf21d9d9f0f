"""Packages that stand in a folder as pip would have put them there."""

import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Install = Callable[..., None]


def write(
    folder: Path,
    distribution: str,
    files: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
) -> None:
    """A distribution's files, and the metadata that names its entry points.

    Args:
        folder: made, if it is not there.
        distribution: its name, such as ``tiny-runtime``.
        files: code by path.
        entry_points: by group, what each name stands for.

    """
    for name, code in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(code), "utf-8")
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")


def installer(folder: Path, monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]) -> Install:
    """``write`` into a folder on ``sys.path``, which the process then finds.

    Args:
        folder: for the packages.
        monkeypatch: takes it off the path again.
        forget: makes edgedec look again for what is installed.

    """

    def install(
        distribution: str, files: Mapping[str, str], **entry_points: Mapping[str, str]
    ) -> None:
        groups = {name.replace("_", ".", 1): points for name, points in entry_points.items()}
        write(folder, distribution, files, groups)
        if str(folder) not in sys.path:
            monkeypatch.syspath_prepend(folder)
        packages = {file.partition("/")[0].removesuffix(".py") for file in files}
        for module in [name for name in sys.modules if name.partition(".")[0] in packages]:
            monkeypatch.delitem(sys.modules, module)  # another test's package of the same name
        forget()

    return install
