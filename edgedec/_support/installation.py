"""Finds how this program was installed, and the commands that install missing packages.

The distribution is called ``edgedec-runtime``; ``edgedec`` on the package index is another
project's, which happens to install a package of the same name.
"""

from __future__ import annotations

import json
import os
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
_ROOT = Path(__file__).resolve().parents[2]


def install(*packages: str, extra: str | None = None) -> str:
    """The command that adds an extra of this distribution, or packages of others.

    It can be pasted where it is shown: a clone names itself by its folder, and where ``pip`` is
    not the one of this Python, the interpreter is named.

    Args:
        packages: distributions by their names.
        extra: one of this distribution's extras.

    """
    own = [] if extra is None else [*_editable(), _quoted(f"{_source()}[{extra}]")]
    return " ".join([_pip("install"), *own, *packages])


def upgrade() -> str:
    """The command that brings this distribution up to date."""
    clone = _clone()
    if clone is None or not (clone / ".git").exists():
        return f"{_pip('install')} --upgrade {DISTRIBUTION}"
    return "git pull" if clone == _here() else f"git -C {_quoted(str(clone))} pull"


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
    source = _quoted(_wheel() or _source())
    again = " ".join(["--force-reinstall", "--no-deps", *_editable(), source])
    return (
        f"the distribution {_FOREIGN} {found.version} is installed as well; it is {whose} and"
        f" has a package of the same name: `{_pip('uninstall')} {_FOREIGN}`, then"
        f" `{_pip('install')} {again}`"
    )


def _pip(verb: str) -> str:
    """The beginning of a command of ``pip`` for this interpreter."""
    folder = Path(sys.executable).parent
    found = shutil.which("pip")
    if found is not None and Path(found).parent == folder:
        return f"pip {verb}"
    executable = Path(sys.executable)
    here = _here()
    if here is not None and executable.is_relative_to(here):
        executable = executable.relative_to(here)
    if util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip {verb} --python {_quoted(str(executable))}"
    return f"{_quoted(str(executable))} -m pip {verb}"


def _here() -> Path | None:
    """Return the current folder, or None if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _source() -> str:
    """Return pip's name for this distribution: its name, or the folder of the clone."""
    clone = _clone()
    if clone is None:
        return DISTRIBUTION
    return "." if clone == _here() else str(clone)


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


def _wheel() -> str | None:
    """Return the file that this distribution was installed from, if it still exists."""
    url = urlsplit(str(_installed_from().get("url", "")))
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).is_file() else None


def _installed_from() -> dict[str, Any]:
    """Return pip's note on an installation from a file or a folder; empty otherwise."""
    from importlib import metadata

    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        found = json.loads(noted or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _quoted(word: str) -> str:
    """Return a text quoted as one word of a command line."""
    if os.name == "nt":
        return f'"{word}"' if set(word) & set(" []&()") else word
    return shlex.quote(word)
