"""Describes this machine: its memory, and the facts that its measurements depend on."""

from __future__ import annotations

import fnmatch
import hashlib
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._version import __version__
from edgedec.hardware import cgroup
from edgedec.hardware.system_files import sizes, text

if TYPE_CHECKING:
    from importlib import metadata

    from edgedec.hardware.clusters import Cluster

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes; None if the system does not report it.

    Attributes:
        free: available to this process, within its limit.
        limit: of the control group around this process, if there is one below ``total``.

    """

    total: int | None
    free: int | None
    limit: int | None

    @property
    def usable(self) -> int | None:
        """Bytes that this process could use if nothing else used memory."""
        return self.total if self.limit is None else self.limit


def memory(root: Path = _ROOT) -> Memory:
    """Return the machine's memory and this process's part of it."""
    stated = sizes(root / "proc/meminfo")
    total, free = stated.get("MemTotal"), stated.get("MemAvailable")
    if total is None and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = cgroup.allowance(root)
    if allowed is None or (total is not None and allowed.limit >= total):
        return Memory(total, free, None)
    free = allowed.free if free is None else min(free, allowed.free)
    return Memory(total, free, allowed.limit)


# -- facts --------------------------------------------------------------------------------------


def machine_facts() -> dict[str, str]:
    """Return the facts that measurements of this machine depend on, in words.

    ``machine`` is a hash of the system's own identifier, so that nothing private is stored; it is
    empty if the system has none.
    """
    from edgedec.hardware.clusters import clusters

    total = memory().total
    return {
        "cpu": cpu_name(),
        "cores": "; ".join((*map(describe, clusters()), *_share())),
        "memory": _rounded(total),
        "system": f"{platform.system()} {platform.machine()}",
        "machine": _hashed(_machine_id()),
    }


def package_versions(patterns: Collection[str]) -> dict[str, str]:
    """Return the versions of the installed packages that compute.

    A runtime's build can differ under one version (with other devices, say), so the version of one
    with compiled files ends with a hash of what was installed.

    Args:
        patterns: names of runtimes' packages, in which ``*`` stands for anything.

    """
    wanted = re.compile("|".join(fnmatch.translate(one) for one in ("numpy", *sorted(patterns))))
    found = {"edgedec": __version__}
    for distribution in _installed(wanted):
        name = _normalized(distribution.name)
        if name not in found and wanted.fullmatch(name):
            found[name] = distribution.version + _build(distribution)
    return dict(sorted(found.items()))


def _installed(wanted: re.Pattern[str]) -> Iterator[metadata.Distribution]:
    """Yield the packages whose folder has a wanted name; to read what all say takes a while.

    Packages within archives, which hold no compiled files, are left out.
    """
    from importlib import metadata  # slow to import

    for place in sys.path:
        try:
            entries = [
                entry
                for entry in Path(place).iterdir()
                if entry.name.endswith((".dist-info", ".egg-info", ".egg"))
            ]
        except (OSError, ValueError, TypeError):  # an archive, nothing at all, or no path
            continue
        for entry in sorted(entries, key=lambda entry: entry.name):
            # Some tools write hyphens in names, so that any of them may end the name.
            parts = _normalized(entry.stem).split("-")
            if any(wanted.fullmatch("-".join(parts[: end + 1])) for end in range(len(parts))):
                yield metadata.Distribution.at(
                    entry / "EGG-INFO" if entry.suffix == ".egg" else entry
                )


def _normalized(name: str | None) -> str:
    """Return a package's name with hyphens alone; a damaged folder has no name at all."""
    return re.sub(r"[-_.]+", "-", name or "").lower()


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the facts that differ, in one line; empty if all are equal."""
    parts = []
    for name in sorted({*before, *now}):
        was, is_now = before.get(name), now.get(name)
        if was == is_now:
            continue
        if name == "machine":
            parts.append("another machine")
        elif was is None or is_now is None:
            parts.append(f"{name} {is_now} is new" if was is None else f"{name} {was} is gone")
        else:
            parts.append(f"{name} was {was}, is {is_now}")
    return "; ".join(parts)


def cpu_name() -> str:
    """Return the processor's name as given by its vendor."""
    fields = cpu_fields()
    named = fields.get("model name") or fields.get("model") or fields.get("hardware")
    return named or platform.processor() or platform.machine()


def cpu_fields(root: Path = _ROOT) -> dict[str, str]:
    """Return ``/proc/cpuinfo`` by lower-case name, the first of each; {} on other systems."""
    fields: dict[str, str] = {}
    for line in text(root / "proc/cpuinfo").splitlines():
        name, colon, value = line.partition(":")
        # A Raspberry Pi's model is in "Model", an Intel processor's number in "model".
        name = name.strip().lower()
        if colon and not (name == "model" and value.strip().isdigit()):
            fields.setdefault(name, value.strip())
    return fields


def cpu_class(root: Path = _ROOT) -> str:
    """Return which processors share this one's kernels, such as ``ARM with dot products``.

    Kernels of other classes add in another order, so that their logits differ in the last bits.
    """
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "x86-64"
    if machine not in ("aarch64", "arm64"):
        return machine or "unknown"
    features = cpu_fields(root).get("features", "").split()
    # Apple's say nothing here, and every one that macOS runs on has them.
    if "asimddp" in features or sys.platform == "darwin":
        return "ARM with dot products"
    return "ARM without dot products" if features else "ARM"


def describe(cluster: Cluster) -> str:
    """Describe a cluster in a few words, such as ``4 big cores at 2400 MHz``."""
    kind = "" if cluster.name == "all" else f"{cluster.name} "
    clock = f" at {cluster.max_mhz:.0f} MHz" if cluster.max_mhz else ""
    count = len(cluster.cores)
    threads = f" of {len(cluster.logical)} threads" if len(cluster.logical) > count else ""
    return f"{count} {kind}core{'s' if count != 1 else ''}{threads}{clock}"


def _share() -> list[str]:
    """Return a container's share of the cores, unless it has all of them."""
    share = cgroup.processors()
    return [] if share is None else [f"the time of {share:g} for this process"]


def _rounded(total: int | None) -> str:
    """Return nominal memory, 2**k or 1.5 * 2**k GB: the part kept by the system varies."""
    if not total:
        return "unknown"
    below = 2.0 ** math.floor(math.log2(total / 2**30))
    nearest = min((below, 1.5 * below, 2 * below), key=lambda size: abs(size - total / 2**30))
    return f"{nearest:g} GB"


def _build(distribution: metadata.Distribution) -> str:
    record = distribution.read_text("RECORD") or ""
    if not re.search(r"\.(so|dylib|dll|pyd)\b", record):
        return ""
    # Compiled at import, with paths and times inside: not part of the build.
    lines = sorted(line for line in record.splitlines() if ".pyc" not in line)
    return f"+{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:8]}"


def _hashed(identifier: str) -> str:
    if not identifier:
        return ""
    return hashlib.sha256(f"edgedec machine {identifier}".encode()).hexdigest()[:16]


def _machine_id() -> str:
    """Return the id of this installation of the system; empty if it has none."""
    for file in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        if identifier := text(Path(file)):
            return identifier
    if sys.platform == "darwin":
        return _first_match(
            ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"],
            r'"IOPlatformUUID" = "([^"]+)"',
        )
    if sys.platform == "win32":
        key = r"HKLM\SOFTWARE\Microsoft\Cryptography"
        return _first_match(["reg", "query", key, "/v", "MachineGuid"], r"REG_SZ\s+(\S+)")
    return ""


def _first_match(command: list[str], pattern: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(pattern, done.stdout)
    return match[1] if match else ""
