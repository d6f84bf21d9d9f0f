"""What this installation and this machine have: facts for ``edgedec doctor``."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from edgedec.errors import EdgedecError

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
        "edgedec": _version("edgedec"),
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
    install = None if complete else f'pip install "edgedec[{extra}]"'
    purpose = PURPOSES.get(extra)
    return {"complete": complete, "purpose": purpose, "packages": packages, "install": install}


def cpu() -> dict[str, Any]:
    """Name, cores this process may use, and the features that matter to quantised kernels."""
    fields = _cpuinfo()
    flags = set(fields.get("flags", fields.get("features", "")).split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "name": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": usable,
        "features": [name for name in CPU_FEATURES if name in flags],
    }


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields, lower-case names; empty where the system has no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def memory() -> dict[str, int | None]:
    """Bytes: all there is, what is free now, and the container's limit if there is one."""
    total = available = None
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, available = values.get("MemTotal"), values.get("MemAvailable")
    except (OSError, ValueError, IndexError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"total_bytes": total, "available_bytes": available, "limit_bytes": _cgroup_limit(total)}


def _cgroup_limit(total: int | None) -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = int((Path("/sys/fs/cgroup") / name).read_text("ascii"))
        except (OSError, ValueError):
            continue
        return limit if total is None or limit < total else None
    return None


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
        f"{name} is not installed: pip install {name}"
        for name, version in facts["packages"].items()
        if version is None
    ]
    if not facts["demo"]["whole"]:
        found.append(f"the demo bundle: {facts['demo']['reason']}")
    return found
