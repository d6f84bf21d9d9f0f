"""The build backend: setuptools', for clones without symbolic links, with the same bytes each time.

Git and zip on Windows write a symbolic link as a small text file that holds its target. Before a
build such files become links again (junctions on Windows, which need no rights). Archives depend
neither on the time, nor on the modes of the source: ``SOURCE_DATE_EPOCH`` is their time, 1980 by
default. Bytes may still differ between versions of zlib and setuptools.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Links of the repository; an sdist has a folder in place of the first.
LINKS = {
    "src/edgedec": "../edgedec",
    "edgedec/export": "../export",
    "edgedec/models": "../models",
    "edgedec/runtimes": "../runtimes",
}
# The earliest time that a zip file can hold.
EPOCH = 315532800
_FILE, _FOLDER = 0o644, 0o755

Settings = dict[str, Any] | None


def _hook(name: str) -> Callable[..., Any]:
    """Return a hook of setuptools', which finds links and a time."""

    def run(*args: Any, **named: Any) -> Any:
        from setuptools import build_meta  # which replaces distutils in the whole process

        os.environ.setdefault("SOURCE_DATE_EPOCH", str(EPOCH))
        mend_links(ROOT, _junction if os.name == "nt" else _link)
        return getattr(build_meta, name)(*args, **named)

    return run


get_requires_for_build_editable = _hook("get_requires_for_build_editable")
get_requires_for_build_sdist = _hook("get_requires_for_build_sdist")
get_requires_for_build_wheel = _hook("get_requires_for_build_wheel")
prepare_metadata_for_build_editable = _hook("prepare_metadata_for_build_editable")
prepare_metadata_for_build_wheel = _hook("prepare_metadata_for_build_wheel")
build_editable = _hook("build_editable")


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build the wheel."""
    name: str = _hook("build_wheel")(directory, settings, metadata)
    normalise_wheel(Path(directory, name))
    return name


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Build the source archive."""
    name: str = _hook("build_sdist")(directory, settings)
    normalise_sdist(Path(directory, name))
    return name


def mend_links(root: Path, link: Callable[[Path, str], None]) -> list[str]:
    """Replace files that stand for links; return their names.

    Args:
        root: of the repository.
        link: makes a link at a path to a folder, which is relative to the path's own.

    """
    found = []
    for name, target in LINKS.items():
        path = root / name
        if path.is_symlink() or not path.is_file() or path.read_text("utf-8").strip() != target:
            continue
        path.unlink()
        link(path, target)
        found.append(name)
    return found


def _link(path: Path, target: str) -> None:
    path.symlink_to(target, target_is_directory=True)


def _junction(path: Path, target: str) -> None:
    import _winapi  # of Windows alone

    _winapi.CreateJunction(str((path.parent / target).resolve()), str(path))  # type: ignore[attr-defined]


def normalise_wheel(wheel: Path) -> None:
    """Write a wheel again with modes that do not depend on the source's."""
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        new = Path(folder, wheel.name)
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w") as archive:
            for info in old.infolist():  # the record stands last, as the format wants it
                data = old.read(info)
                info.external_attr = (stat.S_IFREG | _FILE) << 16
                archive.writestr(info, data, zipfile.ZIP_DEFLATED)
        os.replace(new, wheel)


def normalise_sdist(sdist: Path) -> None:
    """Write a source archive again, without times, owners and modes of the source."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    with tempfile.TemporaryDirectory(dir=sdist.parent) as folder:
        new = Path(folder, sdist.name)
        with (
            tarfile.open(sdist) as old,
            new.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for member in sorted(old.getmembers(), key=lambda one: one.name):
                plain = tarfile.TarInfo(member.name)
                plain.type, plain.size, plain.mtime = member.type, member.size, epoch
                plain.mode = _FOLDER if member.isdir() else _FILE
                archive.addfile(plain, old.extractfile(member) if member.isfile() else None)
        shutil.move(new, sdist)
