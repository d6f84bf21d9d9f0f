"""What a certificate is about: the model's files, the program, the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import edgedec
from edgedec._support.model_path import is_gguf
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST, sha256_of
from edgedec.doctor.report import cpu
from edgedec.hardware.machine import memory
from edgedec.loading.sources import every_format
from edgedec.runtimes import registry


def formats(bundle: str, draft: Path | None, wanted: str) -> tuple[list[str], list[str]]:
    """Return the target's formats that can run here, and a note on each of the other ``wanted``."""
    there = {source.format for source in every_format(bundle, draft)["target"]}
    names = [name for name in registry.formats() if name in there and wanted in ("auto", name)]
    usable = [name for name in names if registry.installed(registry.of_format(name).name)]
    notes = [
        f"{name}: left out, the runtime {registry.of_format(name).name} is not installed"
        for name in names
        if name not in usable
    ]
    return usable, notes


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


def versions(formats: list[str]) -> dict[str, str]:
    """Return the versions of edgedec, Python and the runtimes."""
    found = {"edgedec": __version__, "python": platform.python_version()}
    needed = {registry.of_format(name).packages[0] for name in formats}
    return found | {name: metadata.version(name) for name in sorted({"numpy", *needed})}


def program() -> str:
    """Return a sha256 over all modules of this package, names included."""
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
    """Return the machine's facts, without names."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "memory_bytes": memory().usable,
    }


def models(bundle: str) -> dict[str, str]:
    """Describe target and draft in words, as the manifest does; {} for a GGUF file."""
    if is_gguf(bundle):
        return {}
    return {
        role.role: f"{role.architecture} ({', '.join(_weights(role.variants))})"
        for role in Bundle.open(bundle).roles
    }


def _weights(variants: Any) -> list[str]:
    return [f"{name} {variant.weights}" for name, variant in variants.items()]
