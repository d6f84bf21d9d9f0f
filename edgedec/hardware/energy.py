"""Energy that the machine has used, from its processors' counters or its battery.

Linux only. The counters (RAPL; Intel's and AMD's processors) may be read by root alone, and count
whatever else runs there as well. A battery's figure changes every few seconds at best.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

# The standard library alone: benchmarks load this file where edgedec is not installed.
_CLASSES = Path("/sys/class")
# Zones that do not contain each other: a zone "psys" or "core" would count energy twice.
_COUNTED = ("package", "dram")
_MICROWATTHOUR = 3.6e-3  # joules
# Seconds in which a battery's figure changes often enough.
_BATTERY_S = 60.0


class Text(Protocol):
    """The figures of a text that are read here, as ``Metrics`` has them."""

    ttft_s: float
    decode_s: float
    emitted: int


class EnergyMeter:
    """Joules used between two readings.

    Args:
        classes: the folder of the system's device classes; None is the system's.

    """

    def __init__(self, classes: Path | None = None) -> None:
        classes = classes or _CLASSES
        counters = [_Counter(zone) for zone in sorted(classes.glob("powercap/intel-rapl:*"))]
        self._counters = [one for one in counters if one.counts and one.read() is not None]
        self._batteries = sorted(classes.glob("power_supply/BAT*"))
        self._last = self._readings()

    def used(self) -> float | None:
        """Return the joules used since the last call or since the meter was made.

        None if the machine has no such counter, or a battery is not discharging.
        """
        before, self._last = self._last, self._readings()
        if before is None or self._last is None or len(before) != len(self._last):
            return None
        if not self._counters:
            return sum(before) - sum(self._last)
        gone = zip(self._counters, before, self._last, strict=True)
        return sum(counter.between(old, new) for counter, old, new in gone)

    def per_token(self, text: Text) -> float | None:
        """Return the joules per token of a text that began at the last reading.

        None if they are unknown, or if a battery tells and the text took less than a minute.
        """
        joules = self.used()
        too_short = not self._counters and text.ttft_s + text.decode_s < _BATTERY_S
        return joules / text.emitted if joules and text.emitted and not too_short else None

    def _readings(self) -> list[float] | None:
        """Return the counters' joules, or those left in batteries."""
        readers: list[Callable[[], float | None]]
        if self._counters:
            readers = [counter.read for counter in self._counters]
        else:
            readers = [lambda at=at: _left(at) for at in self._batteries]  # type: ignore[misc]
        found = [reading for reader in readers if (reading := reader()) is not None]
        return found if found and len(found) == len(readers) else None


class _Counter:
    """One zone's counter, which begins again when it reaches its limit."""

    def __init__(self, zone: Path) -> None:
        self._file = zone / "energy_uj"
        self._limit = _number(zone / "max_energy_range_uj") or 0.0
        self.counts = _text(zone / "name").startswith(_COUNTED)

    def read(self) -> float | None:
        found = _number(self._file)
        return None if found is None else 1e-6 * found

    def between(self, old: float, new: float) -> float:
        return new - old if new >= old else new - old + 1e-6 * self._limit


def _left(battery: Path) -> float | None:
    """Return the joules left in a battery that is discharging."""
    if _text(battery / "status") != "Discharging":
        return None
    energy = _number(battery / "energy_now")
    if energy is None:
        charge, volts = _number(battery / "charge_now"), _number(battery / "voltage_now")
        if charge is None or volts is None:
            return None
        energy = charge * volts * 1e-6
    return _MICROWATTHOUR * energy


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("ascii").strip()
    return ""


def _number(file: Path) -> float | None:
    with suppress(ValueError):
        return float(_text(file))
    return None
