"""Facts in a certificate: the model's files, the program and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import edgedec
from edgedec._support.model_path import is_gguf
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST, sha256_of
from edgedec.decoding.drafting import PLAIN
from edgedec.doctor.report import cpu
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware.machine import cpu_class, memory
from edgedec.loading.build import OpenOptions
from edgedec.loading.sources import Models
from edgedec.pipeline import Pipeline
from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import registry


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a certificate compares: every runtime that can decode the model here.

    Attributes:
        options: load options by name: a format, or a format and a device other than its default.
        left_out: a note on each runtime that cannot decode the model.

    """

    options: dict[str, OpenOptions]
    left_out: list[str]


def subjects(bundle: str, options: OpenOptions) -> Subjects:
    """Return each usable format of the target, and each on the devices that are for targets only.

    Such devices (``AdapterInfo.target_places``) are left out if the options place the target.
    """
    there = {source.format for source in Models.find(bundle, options.draft).sources["target"]}
    found = Subjects({}, [])
    for name in registry.formats():
        if name not in there or options.format not in ("auto", name):
            continue
        info = registry.of_format(name)
        if not registry.installed(info.name):
            note = f"{name}: left out, the runtime {info.name} is not installed"
            found.left_out.append(note)
            continue
        own = options.changed(format=name)
        found.options[name] = own
        if options.load.device is None and not options.load.providers:
            _add_devices(found, bundle, own, info)
    return found


def _add_devices(found: Subjects, bundle: str, options: OpenOptions, info: AdapterInfo) -> None:
    """Add the devices that are for targets only, if they can load the target."""
    for device in registry.adapter(info.name).devices():
        if device.name not in info.target_places:
            continue
        name = f"{options.format} on {device.name}"
        there = options.changed(device=device.name)
        try:
            Pipeline.open(bundle, there.changed(drafter=PLAIN)).close()
        except (InputError, RuntimeUnavailable) as error:
            found.left_out.append(f"{name}: left out, {error}")
        else:
            found.options[name] = there


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


def models(bundle: str) -> dict[str, str]:
    """Describe target and draft from the manifest; {} for a GGUF file."""
    if is_gguf(bundle):
        return {}
    return {
        role.role: f"{role.architecture} ({', '.join(_weights(role.variants))})"
        for role in Bundle.open(bundle).roles
    }


def _weights(variants: Any) -> list[str]:
    return [f"{name} {variant.weights}" for name, variant in variants.items()]
