"""Lists every runtime's devices, with cores or memory, for ``edgedec devices``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgedec.doctor.forms import refusal
from edgedec.errors import EdgedecError
from edgedec.hardware.clusters import Cluster, can_pin, clusters
from edgedec.hardware.device import Device
from edgedec.hardware.machine import Memory, memory
from edgedec.runtimes import registry

Listener = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SurveyedDevice:
    """A device, or a cluster of the processor's cores, as one runtime uses it.

    Attributes:
        device: as the runtime lists it.
        cluster: of the processor's cores; None for another device.
        takes: formats of bundles that it decodes; None if that was not tried.
        refusal: why it takes none, in one line.

    """

    device: Device
    cluster: Cluster | None
    takes: tuple[str, ...] | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Devices of this machine.

    Attributes:
        found: devices by runtime, in the runtimes' order.
        problems: missing runtimes and parts that do not load; a line each.

    """

    memory: Memory
    clusters: tuple[Cluster, ...]
    found: tuple[SurveyedDevice, ...]
    problems: tuple[str, ...]


def survey(
    *, attempt: bool = True, rpc: str | None = None, on_progress: Listener | None = None
) -> Survey:
    """List all devices; an error of one does not affect the others.

    Args:
        attempt: also try which bundles they take, some seconds for each but the processor.
        rpc: servers whose devices are listed as well, ``HOST:PORT[,HOST:PORT]``.
        on_progress: called with the next device, the number done and the total.

    Raises:
        InputError, RuntimeUnavailable: see ``registry.remote_devices``.

    """
    remote = registry.remote_devices(rpc) if rpc else []
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
    found += [SurveyedDevice(device, None) for device in remote]
    if attempt:
        found = _tried(found, on_progress)
    return Survey(memory(), groups, tuple(found), tuple(problems))


def _places(device: Device, groups: tuple[Cluster, ...]) -> list[SurveyedDevice]:
    """Return the processor once per cluster, if threads can be pinned, and other devices once."""
    if device.kind != "cpu":
        return [SurveyedDevice(device, None)]
    if len(groups) > 1 and not can_pin():
        cores = tuple(core for group in groups for core in group.cores)
        logical = tuple(core for group in groups for core in group.logical)
        groups = (Cluster(cores, logical, None, None, "all"),)
    return [SurveyedDevice(device, group) for group in groups]


def _tried(found: list[SurveyedDevice], on_progress: Listener | None) -> list[SurveyedDevice]:
    """Return devices with the bundles that they take."""
    infos, tried = registry.infos(), []
    for done, one in enumerate(found):
        if on_progress:
            on_progress(f"{one.device.runtime} {one.device.name}", done, len(found))
        info, reason = infos.get(one.device.runtime), refusal(one.device)
        formats = () if info is None or reason else info.formats
        tried.append(replace(one, takes=formats, refusal=reason))
    if on_progress:
        on_progress("", len(found), len(found))
    return tried


def _line(error: Exception) -> str:
    words = (str(error).strip() or type(error).__name__).splitlines()[0]
    return words if isinstance(error, EdgedecError) else f"{type(error).__name__}: {words}"
