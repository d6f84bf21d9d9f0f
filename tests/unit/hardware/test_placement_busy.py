"""How busy other programs keep the processor: counted from the kernel's ticks, and for real."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic, process_time, sleep

import pytest

from edgedec.hardware import contention
from edgedec.hardware.contention import Usage

needs_ticks = pytest.mark.skipif(
    contention.usage() is None, reason="this system does not count the time of its cores"
)
START = Usage(at_s=100.0, all_s=50.0, own_s=7.0, cores=2)


def later(wall_s: float, all_s: float, own_s: float) -> Usage:
    return Usage(START.at_s + wall_s, START.all_s + all_s, START.own_s + own_s, START.cores)


@pytest.mark.parametrize(
    ("wall_s", "all_s", "own_s", "expected"),
    [
        (10.0, 0.0, 0.0, 0.0),
        (10.0, 20.0, 20.0, 0.0),  # all of it is this process's own
        (10.0, 20.0, 0.0, 1.0),
        (10.0, 12.0, 10.0, 0.1),
        (10.0, 15.0, 10.0, 0.25),
        (10.0, 9.0, 10.0, 0.0),  # clocks that disagree by a little
    ],
)
def test_the_share_is_what_is_not_our_own(wall_s, all_s, own_s, expected):
    assert contention.by_others(START, later(wall_s, all_s, own_s)) == pytest.approx(expected)


def test_where_nothing_is_counted_the_share_is_unknown(tmp_path: Path):
    assert contention.usage(tmp_path / "missing") is None
    assert contention.by_others(None, START) is None
    assert contention.by_others(START, None) is None
    assert contention.by_others(START, later(0.05, 0.05, 0.0)) is None
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for damaged in (
        "",
        "cpu0 x y z\n",
        "cpu0 1\n",
        "".join(f"cpu{n} 0 0 0 9 9 0 0 0\n" for n in cores),
    ):
        (tmp_path / "stat").write_text(damaged)
        assert contention.usage(tmp_path / "stat") is None


@needs_ticks
def test_waiting_for_a_disk_and_cores_that_are_not_ours_do_not_count(tmp_path: Path):
    cores = sorted(os.sched_getaffinity(0))
    stat, tick = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    ours = [f"cpu{core} 1 20 300 4000 50000 600000 7000000 80000000 9 9" for core in cores]
    stat.write_text("\n".join(["cpu 9 9 9 9", *ours, "cpu4095 1 1 1 1 1 1 1 1", "intr 5"]))
    found = contention.usage(stat)
    assert found is not None
    assert found.all_s == pytest.approx(len(cores) * 87600321 / tick)
    assert found.cores == len(cores)


def share_of(seconds: float) -> tuple[float, Usage, Usage]:
    before = contention.usage()
    begin = monotonic()
    sleep(seconds)
    after = contention.usage()
    assert before is not None
    assert after is not None
    assert monotonic() - begin >= seconds
    found = contention.by_others(before, after)
    assert found is not None
    return found, before, after


@pytest.mark.slow
@needs_ticks
def test_a_real_busy_loop_is_seen_and_ones_own_is_not():
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found, before, after = share_of(3.0)
    finally:
        loop.kill()
        loop.wait()
    # A loop on one core, however many others compete for it.
    assert found > 0.5 / before.cores
    # The twin that forgets what is its own would call its own work another's.
    before, begin = contention.usage(), process_time()
    while process_time() - begin < 1.0:
        pass
    after = contention.usage()
    own, twin = (
        contention.by_others(before, after),
        contention.by_others(before, replace(after, own_s=before.own_s)),
    )
    assert twin - own > 0.5 / ((after.at_s - before.at_s) * after.cores)
