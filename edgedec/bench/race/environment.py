"""Makes a peer's environment, completely or not at all.

A record is written last. An environment without it was interrupted, and one with other
requirements is of another version; both are removed and made again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.atomic import write_json
from edgedec._support.fields import json_object
from edgedec.bench.race.children import Failed, ask, execute
from edgedec.bench.race.protocol import Peer, file_of

READY = "edgedec-ready.json"
# llama.cpp takes about ten minutes on two idle cores.
_LIMIT_S = 7200.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A peer's environment.

    Attributes:
        folder: where it stands; "" is this interpreter's.
        python: its interpreter.
        versions: of its packages, as ``name==version``.
        paths: further folders in which its interpreter looks for modules.

    """

    folder: str
    python: Path
    versions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def common(self) -> dict[str, Any]:
        """Return what every request has."""
        return {"folder": self.folder, "paths": list(self.paths)}


def make(peer: Peer, work: Path) -> Environment:
    """Return a peer's environment, made if it is not there.

    Raises:
        Failed: it cannot be made; nothing of it is left.

    """
    requirements = peer.REQUIREMENTS
    if requirements is None:
        return Environment("", Path(sys.executable), paths=tuple(sys.path))
    folder = (work / "env" / peer.NAME).resolve()
    recipe = _recipe(peer, requirements)
    ready = _ready(folder)
    if ready is None or ready.get("recipe") != recipe:
        _remove(folder)
        try:
            versions = _install(peer, requirements, folder, work / "logs")
        except Failed:
            _remove(folder)
            raise
        ready = {"recipe": recipe, "versions": versions}
        write_json(folder / READY, ready, indent=1)
    return Environment(str(folder), _python(folder), tuple(ready["versions"]))


def _install(peer: Peer, requirements: tuple[str, ...], folder: Path, logs: Path) -> list[str]:
    """Fill a folder; return the versions of its packages."""
    log = logs / f"{peer.NAME}-install.log"
    folder.parent.mkdir(parents=True, exist_ok=True)
    execute([sys.executable, "-m", "venv", "--without-pip", folder], log, _LIMIT_S)
    # This interpreter's pip: to copy it there takes longer than some installs.
    python = _python(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    pip += ["--disable-pip-version-check", "--no-input"]
    if requirements:
        execute([*pip, "install", "--quiet", *requirements], log, _LIMIT_S)
    request = {"task": "build", "folder": str(folder), "pip": pip}
    found = ask(python, file_of(peer), request, logs / f"{peer.NAME}-build.log", _LIMIT_S)
    return [str(version) for version in found["versions"]]


def _recipe(peer: Peer, requirements: tuple[str, ...]) -> str:
    """Return a digest of what an environment is made of."""
    parts = [*requirements, inspect.getsource(peer.build), platform.python_version()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _ready(folder: Path) -> dict[str, Any] | None:
    with suppress(OSError):
        found = json_object((folder / READY).read_bytes())
        if found is not None and isinstance(found.get("versions"), list):
            return found if _python(folder).exists() else None
    return None


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Failed("crash", f"{folder} is half made and cannot be removed: {error}") from None
