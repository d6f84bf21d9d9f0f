"""Finds how this program was installed, and the commands that install missing packages.

The distribution is called ``edgedec-runtime``; ``edgedec`` on the package index is another
project's, which happens to install a package of the same name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib import util
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "edgedec-runtime"
_FOREIGN = "edgedec"
# This project's metadata, under its present name and its former one.
_SUBJECT = "speculative decoding"
# For an installation that did not keep the clone or wheel it came from.
UPGRADE = "`git pull`, then `pip install .`, in a clone of edgedec"
_ROOT = Path(__file__).resolve().parents[2]


def install(*packages: str, extra: str | None = None) -> str:
    """The command that adds an extra of this distribution, or packages of others.

    It works from any folder: a clone is named by its absolute path, and where ``pip`` is not the
    one of this Python, so is the interpreter. No package index has this distribution, so an
    installation whose source is gone is given the packages of the extra.

    Args:
        packages: distributions by their names.
        extra: one of this distribution's extras, or several with commas between.

    """
    if extra is None:
        return " ".join([_pip("install"), *packages])
    source = _source(extra)
    own = [quoted(one) for one in (requirements(extra) if source is None else [source])]
    return " ".join([_pip("install"), *_editable(), *own, *packages])


def needs(what: str, extra: str, package: str) -> str:
    """Return the sentence about packages that are missing, all at once, and how to install them.

    Args:
        what: needs them; the sentence begins with it.
        extra: of this distribution, which brings them, or several with commas between; empty if
            none does.
        package: one that was found missing.

    """
    brought = requirements(extra) if extra else []
    *others, last = missing(extra) or [package]
    names = f"{', '.join(others)} and {last}" if others else last
    are = "which are not installed" if others else "which is not installed"
    ours = bool(extra and (brought or _source()))
    how = install(extra=extra) if ours else install(package)
    return f"{what} needs {names}, {are}: `{how}`"


def missing(extra: str) -> list[str]:
    """Return the packages of extras that are not installed; none if this was never installed."""
    brought = requirements(extra) if extra else []
    return [name for name in map(_name, brought) if not _present(name)]


def requirements(extra: str) -> list[str]:
    """Return what extras require, as pip takes it; empty if this was never installed."""
    from importlib import metadata

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        asked = re.search(r"""extra *== *['"]([\w-]+)['"]""", marker)
        if asked is None or asked[1] not in extra.split(","):
            continue
        if inner := re.fullmatch(rf"{DISTRIBUTION}\[([\w,-]+)\]", requirement.strip()):
            found += requirements(inner[1])
        else:
            found.append(requirement.strip())
    return found


def upgrade() -> str:
    """How to bring this distribution up to date: a command, or where to run which."""
    clone = _clone()
    if clone is None or not (clone / ".git").exists():
        return UPGRADE
    return f"`git -C {quoted(str(clone))} pull`"


def stranger() -> str | None:
    """Return the problem of another installed distribution ``edgedec`` and its fix, or None."""
    from importlib import metadata  # the command line imports this module, and seldom advises

    try:
        found = metadata.distribution(_FOREIGN)
    except metadata.PackageNotFoundError:
        return None
    if found.read_text("RECORD") is None:  # what a build left in a folder, not an installation
        return None
    ours = _SUBJECT in str(found.metadata["Summary"])
    whose = "this project under its former name" if ours else "another project's"
    source = _source()
    again = "install its folder or wheel once more"
    if source is not None:
        options = " ".join(["--force-reinstall", "--no-deps", *_editable(), quoted(source)])
        again = f"`{_pip('install')} {options}`"
    return (
        f"the distribution {_FOREIGN} {found.version} is installed as well; it is {whose} and"
        f" has a package of the same name: `{_pip('uninstall')} {_FOREIGN}`, then {again}"
    )


def _pip(verb: str) -> str:
    """The beginning of a command of ``pip`` for this interpreter."""
    folder = Path(sys.executable).parent
    found = shutil.which("pip")
    if found is not None and Path(found).parent == folder:
        return f"pip {verb}"
    executable = quoted(sys.executable)
    if util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip {verb} --python {executable}"
    return f"{executable} -m pip {verb}"


def _source(extra: str | None = None) -> str | None:
    """Return this distribution as pip takes it, with an extra; None if its source is gone."""
    place = _clone() or _installed_file()
    if place is None:
        return None
    return str(place) if extra is None else f"{place}[{extra}]"


def _clone() -> Path | None:
    """The clone that this code is run from."""
    try:
        project = (_ROOT / "pyproject.toml").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return _ROOT if f'name = "{DISTRIBUTION}"' in project else None


def _editable() -> list[str]:
    """The option that keeps an editable installation editable."""
    try:
        editable = _installed_from()["dir_info"]["editable"] is True
    except (KeyError, TypeError):
        editable = False
    return ["--editable"] if editable and _clone() is not None else []


def _installed_file() -> Path | None:
    """Return the wheel or the folder that this was installed from, if it still exists."""
    url = urlsplit(str(_installed_from().get("url", "")))
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.exists() else None


def _name(requirement: str) -> str:
    """Return the distribution's name of a requirement."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _present(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _installed_from() -> dict[str, Any]:
    """Return pip's note on an installation from a file or a folder; empty otherwise."""
    from importlib import metadata

    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        found = json.loads(noted or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def quoted(word: str) -> str:
    """Return a text quoted as one word of a command line."""
    if os.name == "nt":
        return f'"{word}"' if set(word) & set(" []&()") else word
    return shlex.quote(word)
