"""Facts that a figure is worth nothing without: the model's files, the program and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import edgedec
from edgedec._support.model_path import is_gguf
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST, sha256_of
from edgedec.doctor.report import cpu
from edgedec.hardware.machine import cpu_class, memory
from edgedec.runtimes import registry


def files(bundle: str, draft: Path | None) -> dict[str, str]:
    """Return the sha256 of every file of the models, by its name; compared with a manifest's."""
    found = _files(bundle)
    if draft is not None:
        found |= {f"draft: {name}": sha256 for name, sha256 in _files(str(draft)).items()}
    return found


def _files(path: str) -> dict[str, str]:
    if is_gguf(path):
        return {Path(path).name: sha256_of(Path(path))}
    opened = Bundle.open(path, verify=True)
    own = {MANIFEST: sha256_of(opened.path / MANIFEST)}
    return own | {name: fact.sha256 for name, fact in sorted(opened.files.items())}


def versions(formats: Iterable[str]) -> dict[str, str]:
    """Return the versions of edgedec, Python and the installed packages of the runtimes."""
    found = {"edgedec": __version__, "python": platform.python_version()}
    needed = {package for name in formats for package in registry.of_format(name).packages}
    for name in sorted({"numpy", *needed}):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def program() -> str:
    """Return a sha256 over all modules of this package, including their names."""
    root = Path(edgedec.__file__).parent
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root, followlinks=True):
        # Folders of data and scripts are not installed.
        folders[:] = sorted(one for one in folders if (Path(folder, one) / "__init__.py").is_file())
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """Return the machine's facts, without names; ``processors`` are those of its class."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processors": cpu_class(),
        "cpu": cpu(),
        "memory_bytes": memory().usable,
    }
