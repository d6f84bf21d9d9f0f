"""Facts of this installation and this machine, for ``edgedec doctor``."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from edgedec._support import installation, kept
from edgedec._support.amounts import size
from edgedec._version import __version__
from edgedec.decoding import drafting
from edgedec.errors import EdgedecError
from edgedec.hardware import machine, strain
from edgedec.hardware.clusters import clusters
from edgedec.hardware.device import available_cores
from edgedec.runtimes import registry

# In addition to the runtimes' extras.
OTHERS = {
    "export": (
        ("gguf", "ml_dtypes", "onnx", "safetensors", "threadpoolctl"),
        "makes bundles of checkpoints",
    ),
    "optimum": (
        ("optimum", "optimum-onnx", "torch", "transformers"),
        "exports architectures without a spec, by way of torch",
    ),
    "openvino": (("openvino",), "other kernels for ONNX targets: may check drafts faster"),
    "hub": (("huggingface_hub",), "fetches models from a hub, for `edgedec run` and `pull`"),
    "grammar": (("llguidance",), "holds texts to JSON, schemas, expressions and grammars"),
    "serve": (
        ("h11", "prometheus_client", "starlette", "uvicorn"),
        "serves models: `edgedec serve`",
    ),
    "ray": (("ray",), "decodes prompts on several machines: `edgedec generate --ray`"),
    "report": (("matplotlib",), "draws the page of `python -m benchmarks.report`, in a clone"),
}
# A requirement's name; and one of an extra, or for versions of Python before the oldest supported.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_HERE = re.compile(r";.*(extra|python_version) *[=<]")
# CPU features used by int4 and int8 kernels, by their names in /proc/cpuinfo.
CPU_FEATURES = (
    "avx2", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip


def examine() -> dict[str, Any]:
    """Return all facts as a JSON object; ``problems`` lists problems and how to fix them."""
    facts: dict[str, Any] = {
        "edgedec": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: _version(name) for name in needed()},
        "extras": {extra: _extra(extra, *brings) for extra, brings in extras().items()},
        "cpu": cpu(),
        "memory": memory(),
        "swap": swap(),
        "demo": demo(),
        "kept_bytes": kept_bytes(),
    }
    if (found := rpc()) is not None:
        facts["rpc"] = found
    if added := added_runtimes():
        facts["added_runtimes"] = added
    if packages := drafting.added():
        facts["added_drafters"] = packages
    problems = [*_problems(facts), *registry.problems(), *drafting.problems()]
    return {**facts, "problems": problems}


def needed() -> list[str]:
    """Return the packages of the plain installation, as this distribution's metadata lists them."""
    try:
        lines = metadata.requires(installation.DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # a folder that was never installed
        return []
    plain = (line for line in lines if not _NOT_HERE.search(line))
    return sorted({found[0] for line in plain if (found := _NAME.match(line))})


def extras() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return each extra's packages and purpose."""
    infos = registry.infos().values()
    return {info.extra: (info.packages, info.purpose) for info in infos if info.extra} | OTHERS


def added_runtimes() -> dict[str, Any]:
    """Return the runtimes that other packages add."""
    return {
        name: {"formats": info.formats, "packages": {one: _version(one) for one in info.packages}}
        for name, info in registry.added().items()
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extra(extra: str, names: tuple[str, ...], purpose: str) -> dict[str, Any]:
    packages = {name: _version(name) for name in names}
    complete = all(packages.values())
    install = None if complete else installation.install(extra=extra)
    found = {"complete": complete, "purpose": purpose, "packages": packages, "install": install}
    for info in registry.infos().values():
        if install is not None and info.extra == extra and info.wheels:
            found["prebuilt"] = f"{install} {info.wheels}"
    return found


def rpc() -> dict[str, Any] | None:
    """Return whether llama.cpp was built with RPC, and how to build it; None without llama.cpp."""
    for name, info in registry.infos().items():
        if any(option.name == "rpc" for option in info.options):
            try:
                install: str | None = registry.adapter(name).how_to_build_rpc()  # type: ignore[attr-defined]
            except EdgedecError:  # not installed, as the extra's line says, or it does not load
                return None
            return {"built_in": install is None, "install": install}
    return None


def cpu() -> dict[str, Any]:
    """Return the name, the cores this process may use, and features used by quantised kernels."""
    fields = machine.cpu_fields()
    flags = set(fields.get("flags", fields.get("features", "")).split())
    return {
        "name": machine.cpu_name(),
        "cores": available_cores(),
        "clusters": [machine.describe(cluster) for cluster in clusters()],
        "features": [name for name in CPU_FEATURES if name in flags],
    }


def memory() -> dict[str, int | None]:
    """Return bytes in total, free now, and the container's limit if there is one."""
    found = machine.memory()
    return {
        "total_bytes": found.total,
        "available_bytes": found.free,
        "limit_bytes": found.limit,
    }


def swap() -> dict[str, int] | None:
    """Return bytes of the machine's swap: in total, in use, and compressed; None without swap."""
    found = strain.swap()
    if found is None:
        return None
    return {
        "total_bytes": found.total,
        "used_bytes": found.used,
        "compressed_bytes": found.compressed,
    }


def swap_in_words(found: Mapping[str, int] | None) -> str:
    """Return what ``swap`` found as words; "" for a machine without swap."""
    if found is None:
        return ""
    total, compressed = found["total_bytes"], found["compressed_bytes"]
    kind = f", {size(compressed)} of it compressed memory" if compressed else ""
    if compressed == total:
        kind = " of compressed memory"
    return f"{size(total)}{kind}, {size(found['used_bytes'])} in use"


def demo() -> dict[str, Any]:
    """Return whether every file of the shipped pair matches its manifest."""
    from edgedec.bundle import Bundle

    try:
        bundle = Bundle.open("demo", verify=True)
    except EdgedecError as error:
        return {"whole": False, "reason": str(error)}
    return {"whole": True, "path": str(bundle.path), "size_bytes": bundle.size_bytes}


def kept_bytes() -> dict[str, int]:
    """Return the bytes of large files in the user's cache, by kind: see ``edgedec cache``."""
    found: dict[str, int] = {}
    for one in kept.folders():
        found[one.kind] = found.get(one.kind, 0) + one.size_bytes
    return found


def _problems(facts: dict[str, Any]) -> list[str]:
    found = [
        f"{name} is not installed: `{installation.install(name)}`"
        for name, version in facts["packages"].items()
        if version is None
    ]
    if not facts["demo"]["whole"]:
        found.append(f"the demo bundle: {facts['demo']['reason']}")
    stranger = installation.stranger()
    return found if stranger is None else [*found, stranger]
