"""Lists every runtime's devices, with cores or memory and speed, for ``edgedec devices``."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from edgedec._support.confined import Limits, Refused, Stopped, ask_once
from edgedec._support.fields import from_json, to_json
from edgedec.doctor.forms import refusal
from edgedec.errors import EdgedecError, ProfileError, RuntimeUnavailable
from edgedec.hardware.clusters import Cluster, can_pin, clusters
from edgedec.hardware.device import Device, Speed, available_cores
from edgedec.hardware.machine import Memory, memory
from edgedec.hardware.pinning import pinned
from edgedec.records.place import CPU
from edgedec.runtimes import registry

# A driver may start slowly the first time, but one that hangs must not hold up the others.
_PATIENCE_S = 90.0
_CHILD = "edgedec.doctor._survey_child"
# Runnable programs per core, from which on they share it with the measurement.
_BUSY = 0.5
Listener = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SurveyedDevice:
    """A device, or a cluster of the processor's cores, as one runtime uses it.

    Attributes:
        device: as the runtime lists it.
        cluster: of the processor's cores; None for another device.
        threads: number used to measure it; 0 if not counted.
        speed: None if it was not measured.
        problem: why it could not be measured, in one line; None if it could.
        takes: formats of bundles that it decodes; None if that was not tried.
        refusal: why it takes none, in one line.

    """

    device: Device
    cluster: Cluster | None
    threads: int
    speed: Speed | None = None
    problem: str | None = None
    takes: tuple[str, ...] | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Devices of this machine.

    Attributes:
        memory: of the machine.
        clusters: of its cores.
        found: devices by runtime, in the runtimes' order.
        problems: missing runtimes, parts that do not load, interfering programs; a line each.

    """

    memory: Memory
    clusters: tuple[Cluster, ...]
    found: tuple[SurveyedDevice, ...]
    problems: tuple[str, ...]


def survey(*, measure: bool = True, on_progress: Listener | None = None) -> Survey:
    """List all devices; an error of one does not affect the others.

    Args:
        measure: also measure their speed, and try which bundles they take, some seconds each.
        on_progress: called with the next device, the number done and the total.

    """
    groups = tuple(clusters())
    found: list[SurveyedDevice] = []
    problems = [*registry.problems()]
    for name in registry.names():
        try:
            adapter = registry.adapter(name)
            listed = adapter.devices()
            reported: list[str] = getattr(adapter, "problems", list)()
            problems += [text for text in reported if text not in problems]
        except Exception as error:  # any error of a driver
            problems.append(f"{name}: {_line(error)}")
            continue
        found += [one for device in listed for one in _places(device, groups)]
    if measure:
        problems += _disturbance()
        found = [_with_forms(one) for one in _measured(found, on_progress)]
    return Survey(memory(), groups, tuple(found), tuple(problems))


def _disturbance() -> list[str]:
    """Return a line if other programs use the processor."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    cores = available_cores()
    if load < _BUSY * cores:
        return []
    return [f"other programs are busy (load {load:.1f} on {cores} cores): the figures are too low"]


def _places(device: Device, groups: tuple[Cluster, ...]) -> list[SurveyedDevice]:
    """Return the processor once per cluster, if threads can be pinned, and other devices once."""
    if device.kind != "cpu":
        return [SurveyedDevice(device, None, 0)]
    if len(groups) > 1 and not can_pin():
        cores = tuple(core for group in groups for core in group.cores)
        logical = tuple(core for group in groups for core in group.logical)
        groups = (Cluster(cores, logical, None, None, "all"),)
    most = available_cores()
    return [SurveyedDevice(device, group, min(len(group.cores), most)) for group in groups]


def _measured(found: list[SurveyedDevice], on_progress: Listener | None) -> list[SurveyedDevice]:
    """Return devices with speeds; runtimes with one measuring function share a measurement."""
    known: dict[Any, SurveyedDevice] = {}
    keys = [
        (_measure_of(one.device), replace(one.device, runtime=""), one.cluster) for one in found
    ]
    total = len(set(keys))
    for key, one in zip(keys, found, strict=True):
        if key in known:
            continue
        if on_progress:
            on_progress(f"{one.device.runtime} {one.device.name}", len(known), total)
        known[key] = _with_speed(one)
    if on_progress:
        on_progress("", total, total)
    return [
        replace(one, speed=known[key].speed, problem=known[key].problem)
        for key, one in zip(keys, found, strict=True)
    ]


def _with_forms(one: SurveyedDevice) -> SurveyedDevice:
    """Return a device with the bundles that it takes."""
    info = registry.infos().get(one.device.runtime)
    formats = () if info is None else info.formats
    reason = refusal(one.device)
    return replace(one, takes=() if reason else formats, refusal=reason)


def _measure_of(device: Device) -> Callable[[Device, int], Speed] | None:
    """Return the measuring function of the device's runtime; None if it has none."""
    return getattr(registry.adapter(device.runtime), "measure", None)


def _with_speed(one: SurveyedDevice) -> SurveyedDevice:
    if _measure_of(one.device) is None:
        return one
    try:
        # The processor's own kernels are trusted; a driver may end or hang the process.
        own = one.device.name == CPU
        return replace(one, speed=_here(one) if own else _in_child(one))
    except Exception as error:  # an error of one device does not affect the others
        return replace(one, problem=_line(error))


def _here(one: SurveyedDevice) -> Speed:
    """Measure in a thread, whose cores are inherited by threads that a runtime starts in it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(measure_one, one.device, one.threads, _cores(one)).result()


def _cores(one: SurveyedDevice) -> tuple[int, ...] | None:
    return one.cluster.cores if one.cluster is not None and can_pin() else None


def measure_one(device: Device, threads: int, cores: tuple[int, ...] | None) -> Speed:
    """Return a device's speed, measured pinned to some cores, or raise RuntimeUnavailable."""
    measure = _measure_of(device)
    assert measure is not None, "only devices of a runtime that measures"
    with pinned(cores):
        return measure(device, max(1, threads))


def _in_child(one: SurveyedDevice) -> Speed:
    """Measure in a child process; RuntimeUnavailable if the device ends or hangs it."""
    task = {"device": to_json(one.device), "threads": one.threads, "cores": _cores(one)}
    limits = Limits(memory_bytes=None, cpu_s=None, wall_s=_PATIENCE_S)
    try:
        answer = ask_once(_CHILD, task, limits, environment={})
    except (Stopped, Refused) as error:
        raise RuntimeUnavailable(str(error)) from None
    return from_json(Speed, answer, "speed", ProfileError)


def _line(error: Exception) -> str:
    words = (str(error).strip() or type(error).__name__).splitlines()[0]
    return words if isinstance(error, EdgedecError) else f"{type(error).__name__}: {words}"
