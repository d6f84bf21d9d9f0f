"""Energy as the system tells it: counters of processors, or a battery."""

from __future__ import annotations

from pathlib import Path

import pytest
from energy_files import battery, zone

from edgedec.decoding.metrics import Metrics
from edgedec.hardware.energy import EnergyMeter


def test_packages_and_memory_are_counted_and_nothing_twice(tmp_path: Path) -> None:
    def counters(package: float, core: float, dram: float, whole: float) -> None:
        zone(tmp_path, "intel-rapl:0", "package-0", package)
        zone(tmp_path, "intel-rapl:0:0", "core", core)
        zone(tmp_path, "intel-rapl:0:1", "dram", dram)
        zone(tmp_path, "intel-rapl:1", "psys", whole)

    counters(10, 5, 1, 20)
    meter = EnergyMeter(tmp_path)
    counters(13, 7, 1.5, 30)
    assert meter.used() == pytest.approx(3.5)
    assert meter.used() == 0


def test_a_counter_begins_again_at_its_limit(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 998)
    meter = EnergyMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", 4)
    assert meter.used() == pytest.approx(6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"energy_now": 50_000_000}, {"energy_now": 49_000_000}),
        # A charge in microampere-hours at 10 V.
        (
            {"charge_now": 5_000_000, "voltage_now": 10_000_000},
            {"charge_now": 4_900_000, "voltage_now": 10_000_000},
        ),
    ],
)
def test_a_battery_that_is_discharging(
    tmp_path: Path, before: dict[str, float], after: dict[str, float]
) -> None:
    battery(tmp_path, **before)
    meter = EnergyMeter(tmp_path)
    battery(tmp_path, **after)
    assert meter.used() == pytest.approx(3600)  # a watt-hour
    battery(tmp_path, "Charging", **before)
    assert meter.used() is None


def test_counters_are_preferred_to_a_battery(tmp_path: Path) -> None:
    battery(tmp_path, energy_now=50_000_000)
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter = EnergyMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", 2)
    assert meter.used() == pytest.approx(1)


def test_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert EnergyMeter(tmp_path).used() is None
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (folder / "energy_uj").write_text("", "ascii")  # as where only root may read it
    assert EnergyMeter(tmp_path).used() is None


def test_a_counter_that_goes_away_is_no_energy(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter = EnergyMeter(tmp_path)
    (folder / "energy_uj").unlink()
    assert meter.used() is None


@pytest.mark.parametrize(("seconds", "found"), [(59.0, None), (61.0, 36.0)])
def test_a_battery_tells_of_long_texts_alone(
    tmp_path: Path, seconds: float, found: float | None
) -> None:
    battery(tmp_path, energy_now=50_000_000)
    meter = EnergyMeter(tmp_path)
    battery(tmp_path, energy_now=49_000_000)
    text = Metrics(emitted=100, ttft_s=1.0, decode_s=seconds - 1)
    assert meter.per_token(text) == (None if found is None else pytest.approx(found))


def test_a_counter_tells_of_short_texts_and_not_of_empty_ones(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter = EnergyMeter(tmp_path)
    for joules, tokens, found in ((3, 4, 0.5), (5, 0, None), (5, 4, None)):
        zone(tmp_path, "intel-rapl:0", "package-0", joules)
        assert meter.per_token(Metrics(emitted=tokens, ttft_s=0.1)) == found
