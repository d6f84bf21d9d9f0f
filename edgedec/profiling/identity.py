"""Identifies the pair that a profile is for: its files, by hashes that cost little."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgedec._support.files import open_regular
from edgedec._support.model_path import is_gguf
from edgedec.errors import BundleError
from edgedec.hardware.machine import machine_facts, package_versions
from edgedec.loading.sources import Source
from edgedec.profiling.store import Identity
from edgedec.runtimes import registry

_SAMPLES, _SAMPLE = 16, 1 << 16


def identity(
    target: str | Path, draft: Path | None, sources: Mapping[str, Sequence[Source]]
) -> Identity:
    """Return the identity of a pair on this machine, as it is now.

    Args:
        target, draft: as the user named them.
        sources: the models found there, by role.

    """
    stands = [str(models[0].path.resolve().parent) for models in sources.values()]
    if is_gguf(target):
        stands[0] = str(Path(target).resolve())
    if draft is not None and is_gguf(draft):
        stands[-1] = str(draft.resolve())
    digest = hashlib.sha256()
    for role, models in sources.items():
        for source in models:
            for name, path in source.files.items():
                content = source.stated.get(name) or sampled(path)
                digest.update(f"{role}\n{source.format}\n{name}\n{content}\n".encode())
    return Identity(
        "\n".join(stands),
        machine_facts(),
        digest.hexdigest(),
        package_versions(registry.packages()),
    )


def sampled(file: Path) -> str:
    """Return a hash of a file's size and of samples spread over it, without reading gigabytes.

    Raises:
        BundleError: it cannot be read.

    """
    try:
        size = file.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with open_regular(file) as stream:
            for index in range(_SAMPLES):
                stream.seek(index * max(0, size - _SAMPLE) // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE))
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
