"""Places where the models of a pair could run on this machine: a representative selection."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgedec._support.amounts import size
from edgedec.errors import EdgedecError, InputError
from edgedec.hardware.clusters import Cluster, clusters
from edgedec.hardware.machine import memory
from edgedec.loading.sources import Source
from edgedec.profiling.children import HEAD, TARGET
from edgedec.records.place import CPU, REMOTE, Place
from edgedec.runtimes import registry


@dataclass(frozen=True, slots=True)
class Placed:
    """One model at one place, to be measured.

    Attributes:
        source: the model in the place's format.

    """

    source: Source
    place: Place

    @property
    def key(self) -> tuple[str, Place]:
        """Role and place, by which a profile finds it."""
        return self.source.role, self.place


@dataclass(frozen=True, slots=True)
class PlaceFilter:
    """Places to measure; an empty field sets no limit.

    Attributes:
        formats: of the models' files.
        threads: numbers of threads on the processor.
        labels: parts of the places' labels, such as ``cpu:0`` or ``Vulkan``.
        thorough: more numbers of threads, and every split of the cores for every role.
        rpc: servers of other machines, ``HOST:PORT[,HOST:PORT]``: a place for the target that is
            spread over all of them. None is this machine only.
        weight_memory: bytes of the target's weights to keep in memory: only places that stream the
            rest are measured, so that the target is never loaded whole. None loads it whole.

    """

    formats: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    thorough: bool = False
    weight_memory: int | None = None
    rpc: str | None = None


def sites(
    sources: Mapping[str, Sequence[Source]], wanted: PlaceFilter
) -> tuple[list[Placed], list[str]]:
    """Return what to measure, and what is left out, one line each.

    Args:
        sources: by role, the model in every format.

    Raises:
        InputError, RuntimeUnavailable: the servers cannot be used.

    """
    found: list[Placed] = []
    left_out: list[str] = []
    on_servers = _on_servers(sources.get(TARGET, ()), wanted.rpc)
    groups, skipped = clusters(), 0
    cores = sum(len(group.cores) for group in groups)
    for role, models in sources.items():
        for source in models:
            if wanted.formats and source.format not in wanted.formats:
                continue
            try:
                info = registry.of_format(source.format)
                left = info.target_places if role != TARGET else ()
                devices = _devices(source.format, registry.adapter(info.name), cores, left)
                if role == TARGET and source.format in on_servers:
                    devices.append(Place(source.format, f"{REMOTE}{wanted.rpc}"))
            except EdgedecError as error:
                left_out.append(f"{role} as {source.format}: {error}")
                continue
            on_cpu = _on_cpu(source.format, role, groups, wanted)
            more = _on_cpu(source.format, role, groups, replace(wanted, thorough=True))
            skipped += role != HEAD and sum(
                _named(place, wanted.labels) for place in more if place not in on_cpu
            )
            places = [*on_cpu, *devices]
            if any(place.elsewhere for place in places) and (too_large := _too_large(source)):
                places = [place for place in places if place.elsewhere]
                left_out.append(f"{role} on this machine: {too_large}")
            if role == HEAD:  # it runs on the processor, wherever its target does
                places = [place for place in on_cpu if place.cores is None]
            if role == TARGET and wanted.weight_memory is not None:
                able = (place for place in places if streams_weights(place))
                places = [replace(place, weight_memory=wanted.weight_memory) for place in able]
            found += [Placed(source, place) for place in places if _named(place, wanted.labels)]
    if skipped:
        more_places = "1 more place" if skipped == 1 else f"{skipped} more places"
        left_out.append(f"{more_places} on the processor: --thorough measures them")
    return found, left_out


def _too_large(source: Source) -> str:
    """Return why a model cannot be measured on this machine alone; empty if it can."""
    needed = sum(file.stat().st_size for file in source.files.values())
    usable = memory().usable
    if usable is None or needed < usable:
        return ""
    return f"it takes {size(needed)}, of {size(usable)} in total"


def _on_servers(sources: Sequence[Source], rpc: str | None) -> list[str]:
    """Return the formats of a target that servers take, after asking the servers."""
    if rpc is None:
        return []
    found = []
    for source in sources:
        if any(option.name == "rpc" for option in registry.of_format(source.format).options):
            found.append(source.format)
    if not found:
        formats = ", ".join(source.format for source in sources)
        raise InputError(f"--rpc: expected a target in GGUF, this one is in {formats}")
    registry.remote_devices(rpc)
    return found


def streams_weights(place: Place) -> bool:
    """Return whether a place could stream its weights."""
    own = place.device == CPU and place.provider is None and place.cores is None
    return own and format_streams(place.format)


def format_streams(format: str) -> bool:
    """Return whether a format's runtime can stream weights on this system."""
    options = registry.of_format(format).options
    able = any(option.name == "weight_memory" for option in options)
    return able and sys.platform.startswith("linux")


def _named(place: Place, labels: Iterable[str]) -> bool:
    labels = tuple(labels)
    return not labels or any(label in place.label for label in labels)


def _devices(
    format: str, adapter: registry.Adapter, cores: int, left_out: Sequence[str]
) -> list[Place]:
    """Return all places except the processor with the runtime's own kernels.

    A provider that also computes on the processor shares its cores with all others.
    """
    found = []
    for device in adapter.devices():
        if device.name in left_out:
            continue
        if device.kind != CPU:
            found.append(Place(format, device.name, provider=device.provider))
        elif device.name != CPU and device.provider is not None:
            found.append(Place(format, threads=cores, provider=device.provider))
    return found


def _on_cpu(format: str, role: str, groups: Sequence[Cluster], wanted: PlaceFilter) -> list[Place]:
    """Return places on all cores with few or many threads, and on each part of a split."""
    if not registry.of_format(format).processor:
        return []
    cores = [core for group in groups for core in group.cores]
    counts = wanted.threads or thread_counts(len(cores), thorough=wanted.thorough)
    places = [Place(format, threads=count) for count in counts]
    if hasattr(os, "sched_setaffinity") and not wanted.threads:
        for split in splits(groups):
            parts = split if wanted.thorough else split[role != "target" :][:1]
            places += [Place(format, threads=len(part), cores=part) for part in parts]
    return list(dict.fromkeys(places))


def thread_counts(cores: int, *, thorough: bool) -> list[int]:
    """Return one, half and all of the cores; if thorough, every power of two below as well."""
    counts = {1, max(1, cores // 2), cores}
    if thorough:
        counts |= {2**k for k in range(cores.bit_length()) if 2**k <= cores}
    return sorted(counts)


def splits(groups: Sequence[Cluster]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return pairs of disjoint core sets, the target's first: by cluster, and all but one."""
    cores = [core for group in groups for core in group.cores]
    if len(cores) < 2:
        return []
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(tuple(cores[:-1]), (cores[-1],))]
    if len(groups) > 1:
        rest = tuple(core for group in groups[1:] for core in group.cores)
        found.append((groups[0].cores, rest))
    return list(dict.fromkeys(found))
