"""What this installation and this machine have: facts for ``edgedec doctor``."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from edgedec._support import installation
from edgedec._version import __version__
from edgedec.errors import EdgedecError
from edgedec.hardware import machine
from edgedec.hardware.clusters import clusters
from edgedec.hardware.device import available_cores

RUNTIME = ("click", "jinja2", "numpy", "onnxruntime", "rich", "tokenizers")
# What each extra brings, and for what.
EXTRAS = {
    "gguf": ("llama-cpp-python",),
    "export": ("gguf", "ml_dtypes", "onnx", "safetensors"),
    "optimum": ("optimum", "optimum-onnx", "torch", "transformers"),
}
PURPOSES = {
    "gguf": "decodes and quantises GGUF files with llama.cpp",
    "export": "makes bundles of checkpoints",
    "optimum": "exports architectures without a spec, by way of torch",
}
# What int4 and int8 kernels look for, by the names of /proc/cpuinfo.
CPU_FEATURES = (
    "avx2", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip


def examine() -> dict[str, Any]:
    """All facts as a JSON object; ``problems`` says what is wrong and how to mend it."""
    facts: dict[str, Any] = {
        "edgedec": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: _version(name) for name in RUNTIME},
        "extras": {extra: _extra(extra, names) for extra, names in EXTRAS.items()},
        "cpu": cpu(),
        "memory": memory(),
        "demo": demo(),
    }
    return {**facts, "problems": _problems(facts)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extra(extra: str, names: tuple[str, ...]) -> dict[str, Any]:
    packages = {name: _version(name) for name in names}
    complete = all(packages.values())
    install = None if complete else installation.install(extra=extra)
    purpose = PURPOSES.get(extra)
    return {"complete": complete, "purpose": purpose, "packages": packages, "install": install}


def cpu() -> dict[str, Any]:
    """Name, cores this process may use, and the features that matter to quantised kernels."""
    fields = machine.cpu_fields()
    flags = set(fields.get("flags", fields.get("features", "")).split())
    return {
        "name": machine.cpu_name(),
        "cores": available_cores(),
        "clusters": [machine.describe(cluster) for cluster in clusters()],
        "features": [name for name in CPU_FEATURES if name in flags],
    }


def memory() -> dict[str, int | None]:
    """Bytes: all there is, what is free now, and the container's limit if there is one."""
    found = machine.memory()
    return {
        "total_bytes": found.total,
        "available_bytes": found.free,
        "limit_bytes": found.limit,
    }


def demo() -> dict[str, Any]:
    """The pair that ships: whether every byte of it is as the manifest says."""
    from edgedec.bundle import Bundle

    try:
        bundle = Bundle.open("demo", verify=True)
    except EdgedecError as error:
        return {"whole": False, "reason": str(error)}
    return {"whole": True, "path": str(bundle.path), "size_bytes": bundle.size_bytes}


def _problems(facts: dict[str, Any]) -> list[str]:
    found = [
        f"{name} is not installed: {installation.install(name)}"
        for name, version in facts["packages"].items()
        if version is None
    ]
    if not facts["demo"]["whole"]:
        found.append(f"the demo bundle: {facts['demo']['reason']}")
    stranger = installation.stranger()
    return found if stranger is None else [*found, stranger]
