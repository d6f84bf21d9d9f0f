"""What slows a small machine is read from files that boards, phones and laptops have."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedec.hardware.strain import Strain, Swap, strain, swap

PI_4 = "sys/devices/platform/soc/soc:firmware/get_throttled"
PI_5 = "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
COOLING = "sys/class/thermal/cooling_device"
ZONE = "sys/class/thermal/thermal_zone"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("file", [PI_4, PI_5])
@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        ("0\n", ""),
        ("50005\n", "under-voltage"),
        ("0x50000\n", ""),  # it was, since it was switched on
        ("80008\n", "heat"),
        ("2\n", "heat"),
        ("e000e\n", "heat"),
        ("no number\n", ""),
        ("", ""),
    ],
)
def test_a_raspberry_pi_says_what_lowers_its_clock(
    tmp_path: Path, file: str, bits: str, expected: str
) -> None:
    assert strain(machine(tmp_path, {file: bits})).slowed_by == expected


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("cpufreq-cpu0", "2", "heat"),
        ("thermal-cpufreq-1", "1", "heat"),
        ("Processor", "3", "heat"),
        ("cpufreq-cpu4", "0", ""),
        ("intel_powerclamp", "-1", ""),
        ("pwm-fan", "4", ""),
    ],
)
def test_the_kernel_says_that_it_lowers_the_clock(
    tmp_path: Path, kind: str, state: str, expected: str
) -> None:
    fan = {f"{COOLING}0/type": "Fan\n", f"{COOLING}0/cur_state": "1\n"}
    one = {f"{COOLING}1/type": f"{kind}\n", f"{COOLING}1/cur_state": f"{state}\n"}
    assert strain(machine(tmp_path, fan | one)).slowed_by == expected


def test_the_hottest_sensor_and_the_memory_in_swap(tmp_path: Path) -> None:
    files = {
        f"{ZONE}0/temp": "54321\n",
        f"{ZONE}1/temp": "61000\n",
        f"{ZONE}2/temp": "-274000\n",
        f"{ZONE}3/temp": "\n",
        "proc/self/status": "Name:\tpython\nVmSwap:\t  84000 kB\nThreads:\t4\n",
    }
    assert strain(machine(tmp_path, files)) == Strain("", 61.0, 84_000 * 1024)


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert strain(tmp_path) == Strain()
    assert swap(tmp_path) is None


HEAD = "Filename\tType\tSize\tUsed\tPriority\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", None),
        ("/dev/zram0 partition 1000 10 100\n", Swap(1_024_000, 10_240, compressed=1_024_000)),
        ("/var/swap file 2000 0 -2\n", Swap(2_048_000, 0, compressed=0)),
        (
            "/dev/zram0 partition 1000 10 100\n/var/swap file 1000 5 -2\n",
            Swap(2_048_000, 15_360, compressed=1_024_000),
        ),
    ],
)
def test_swap(tmp_path: Path, lines: str, expected: Swap | None) -> None:
    assert swap(machine(tmp_path, {"proc/swaps": HEAD + lines})) == expected
