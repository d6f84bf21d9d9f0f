"""The adapter of the runtime ``onnx-hub``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from edgedec.bundle import ready_onnx
from edgedec.bundle.onnx_file import check_listed
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort import metadata
from edgedec.runtimes._ort.devices import find_devices, problems
from edgedec.runtimes.onnx_hub import trial
from edgedec.runtimes.onnx_hub.model import HubModel

__all__ = ["admit", "describe", "devices", "load", "problems", "sizes"]


def load(path: Path, options: LoadOptions) -> HubModel:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return HubModel.load(
        path,
        threads=options.threads,
        providers=options.providers,
        device=options.device,
        batch_invariant=options.batch_invariant,
    )


def devices() -> list[Device]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return find_devices("onnx-hub")


def admit(path: Path, files: Collection[Path]) -> None:
    """See ``edgedec.runtimes.registry.admit``; a graph of others is tried in a child process."""
    check_listed(path, files)
    if ready_onnx.read(path) is not None:
        trial.found(path)


def sizes(path: Path) -> dict[str, int]:
    """See ``edgedec.runtimes.registry.sizes``."""
    facts = ready_onnx.read(path)
    if facts is None:
        return metadata.sizes(path)
    return {"vocab_size": facts.vocab_size, "max_context": facts.max_context}


def describe(path: Path) -> list[str]:
    """See ``edgedec.runtimes.registry.describe``."""
    return [] if ready_onnx.read(path) is None else [trial.found(path).line]
