"""Notices what slows a small machine: heat, a weak supply, and memory that went to swap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedec.hardware.system_files import sizes, text

_ROOT = Path("/")
# Bits of a Raspberry Pi's firmware; see its documentation of `vcgencmd get_throttled`. Low voltage
# sets the other bits as well: it lowers the clock.
_UNDER_VOLTAGE, _SLOWED = 0x1, 0xE
# How the kernel names what limits a processor's clock: on ARM, on ARM before 4.16, with ACPI.
_CLOCKS = ("cpufreq", "thermal-cpufreq", "Processor")
HEAT, SUPPLY = "heat", "under-voltage"


@dataclass(frozen=True, slots=True)
class Strain:
    """What slows a machine at one moment.

    Attributes:
        slowed_by: ``"heat"`` or ``"under-voltage"`` if the processor's clock is lowered; else "".
        celsius: the hottest sensor; None if there is none.
        swapped_bytes: memory of this process that is in swap, compressed memory included.

    """

    slowed_by: str = ""
    celsius: float | None = None
    swapped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Swap:
    """The machine's swap, in bytes.

    Attributes:
        compressed: how much of ``total`` is compressed memory (zram) rather than a disk.

    """

    total: int
    used: int
    compressed: int


def strain(root: Path = _ROOT) -> Strain:
    """Return what slows this machine now; nothing where the system does not tell."""
    return Strain(
        _slowed_by(root), _celsius(root), sizes(root / "proc/self/status").get("VmSwap", 0)
    )


def power_supply(root: Path = _ROOT) -> str:
    """Return ``"mains"`` or ``"battery"``; "" where the system does not tell."""
    kinds: dict[str, list[Path]] = {"Mains": [], "Battery": []}
    for supply in _found(root, "sys/class/power_supply/*"):
        kinds.get(text(supply / "type"), []).append(supply)
    if any(text(one / "online") == "1" for one in kinds["Mains"]):
        return "mains"
    if any(text(one / "status") == "Discharging" for one in kinds["Battery"]):
        return "battery"
    return ""


def swap(root: Path = _ROOT) -> Swap | None:
    """Return the machine's swap; None without."""
    places = [line.split() for line in text(root / "proc/swaps").splitlines()[1:]]
    places = [fields for fields in places if len(fields) >= 4]
    if not places:
        return None
    total, used = (_summed(places, column) for column in (2, 3))
    in_memory = [fields for fields in places if Path(fields[0]).name.startswith("zram")]
    return Swap(total, used, _summed(in_memory, 2))


def _summed(places: Sequence[Sequence[str]], column: int) -> int:
    return sum(1024 * int(fields[column]) for fields in places)


def _slowed_by(root: Path) -> str:
    # A Raspberry Pi 5 names its bus by address.
    for file in _found(root, "sys/devices/platform/soc*/soc*:firmware/get_throttled"):
        with contextlib.suppress(ValueError):
            bits = int(text(file), 16)
            if bits & (_UNDER_VOLTAGE | _SLOWED):
                return SUPPLY if bits & _UNDER_VOLTAGE else HEAT
    for device in _found(root, "sys/class/thermal/cooling_device*"):
        state = text(device / "cur_state")
        if text(device / "type").startswith(_CLOCKS) and state.isdigit() and int(state):
            return HEAT
    return ""


def _celsius(root: Path) -> float | None:
    found = []
    for file in _found(root, "sys/class/thermal/thermal_zone*/temp"):
        with contextlib.suppress(ValueError):
            found.append(int(text(file)) / 1000)
    # Sensors without a value say 0 or less.
    return max((value for value in found if value > 0), default=None)


def _found(root: Path, pattern: str) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(root.glob(pattern))
