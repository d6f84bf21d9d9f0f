"""Core clusters of machines as their systems describe them."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from edgedec.hardware import clusters as module
from edgedec.hardware.clusters import Cluster, clusters


def write_cpus(
    root: Path,
    count: int,
    *,
    siblings: Iterable[Iterable[int]] = (),
    mhz: Mapping[int, int] | None = None,
    capacity: Mapping[int, int] | None = None,
    kinds: Mapping[str, str] | None = None,
    older: bool = False,
) -> Path:
    """A tree as Linux has it under /sys/devices, with what the scheduler and cpufreq tell."""
    together = {number: sorted(group) for group in siblings for number in group}
    for number in range(count):
        folder = root / "system" / "cpu" / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        name = "thread_siblings_list" if older else "core_cpus_list"
        text = ",".join(map(str, together.get(number, [number])))
        (folder / "topology" / name).write_text(f"{text}\n", "ascii")
        if mhz:
            (folder / "cpufreq").mkdir()
            (folder / "cpufreq" / "cpuinfo_max_freq").write_text(f"{mhz[number]}000\n", "ascii")
        if capacity:
            (folder / "cpu_capacity").write_text(f"{capacity[number]}\n", "ascii")
    for name, numbers in (kinds or {}).items():
        (root / name).mkdir()
        (root / name / "cpus").write_text(f"{numbers}\n", "ascii")
    return root


def spread(*runs: tuple[int, int]) -> dict[int, int]:
    """``(how many, value)`` to the value of each processor."""
    values = [value for many, value in runs for _ in range(many)]
    return dict(enumerate(values))


def shape(found: list[Cluster]) -> list[tuple[str, tuple[int, ...]]]:
    return [(cluster.name, cluster.cores) for cluster in found]


def test_raspberry_pi_5(tmp_path: Path) -> None:
    write_cpus(tmp_path, 4, mhz=spread((4, 2400)), capacity=spread((4, 1024)))
    (only,) = clusters(tmp_path, range(4))
    assert only == Cluster((0, 1, 2, 3), (0, 1, 2, 3), 2400.0, 1024, "all")


def test_a_phone_with_three_clusters(tmp_path: Path) -> None:
    write_cpus(
        tmp_path,
        8,
        mhz=spread((4, 1800), (3, 2420), (1, 2840)),
        capacity=spread((4, 286), (3, 871), (1, 1024)),
    )
    found = clusters(tmp_path, range(8))
    assert shape(found) == [("big", (7,)), ("middle", (4, 5, 6)), ("little", (0, 1, 2, 3))]
    assert [cluster.max_mhz for cluster in found] == [2840, 2420, 1800]


def test_capacity_decides_where_clocks_are_equal(tmp_path: Path) -> None:
    """Two kinds of core at one clock are two places: the clock alone would not tell."""
    write_cpus(tmp_path, 6, mhz=spread((6, 2000)), capacity=spread((4, 400), (2, 1024)))
    found = clusters(tmp_path, range(6))
    assert shape(found) == [("big", (4, 5)), ("little", (0, 1, 2, 3))]


def test_intel_hybrid(tmp_path: Path) -> None:
    """Two favoured cores clock higher and are no cluster of their own; SMT counts once."""
    write_cpus(
        tmp_path,
        16,
        siblings=[(0, 1), (2, 3), (4, 5), (6, 7)],
        mhz=spread((4, 5200), (4, 5000), (8, 3900)),
        kinds={"cpu_core": "0-7", "cpu_atom": "8-15"},
    )
    big, little = clusters(tmp_path, range(16))
    assert (big.name, big.cores, big.logical) == ("big", (0, 2, 4, 6), tuple(range(8)))
    assert (little.cores, little.logical) == (tuple(range(8, 16)),) * 2
    assert (big.max_mhz, little.max_mhz) == (5200, 3900)


def test_hybrid_kinds_at_one_clock(tmp_path: Path) -> None:
    tree = write_cpus(
        tmp_path, 4, mhz=spread((4, 3000)), kinds={"cpu_core": "0,1", "cpu_atom": "2-3"}
    )
    assert shape(clusters(tree, range(4))) == [("big", (0, 1)), ("little", (2, 3))]


def test_four_clusters(tmp_path: Path) -> None:
    write_cpus(tmp_path, 5, capacity=spread((2, 300), (1, 600), (1, 850), (1, 1024)))
    names = [name for name, _ in shape(clusters(tmp_path, range(5)))]
    assert names == ["big", "middle1", "middle2", "little"]


def test_only_what_this_process_may_use(tmp_path: Path) -> None:
    write_cpus(
        tmp_path,
        8,
        siblings=[(0, 4), (1, 5), (2, 6), (3, 7)],
        capacity=spread((2, 1024), (2, 500), (2, 1024), (2, 500)),
        older=True,
    )
    assert shape(clusters(tmp_path, range(8))) == [("big", (0, 1)), ("little", (2, 3))]
    # One core lost its first thread, the little cluster is not allowed at all.
    (only,) = clusters(tmp_path, [0, 4, 5])
    assert (only.name, only.cores, only.logical) == ("all", (0, 5), (0, 4, 5))


def test_a_virtual_machine_that_says_nothing(tmp_path: Path) -> None:
    (only,) = clusters(tmp_path / "nowhere", [0, 3])
    assert only == Cluster((0, 3), (0, 3), None, None, "all")


@pytest.mark.parametrize("text", ["", "x-y", "0-", "\n"])
def test_damaged_lists(tmp_path: Path, text: str) -> None:
    write_cpus(tmp_path, 2)
    file = tmp_path / "system/cpu/cpu0/topology/core_cpus_list"
    file.write_text(text, "ascii")
    assert shape(clusters(tmp_path, range(2))) == [("all", (0, 1))]


def test_this_machine() -> None:
    found = clusters()
    numbers = [number for cluster in found for number in cluster.logical]
    assert sorted(numbers) == sorted(set(numbers))
    if hasattr(os, "sched_getaffinity"):
        assert set(numbers) == os.sched_getaffinity(0)
    for cluster in found:
        assert set(cluster.cores) <= set(cluster.logical)


M2 = {
    "hw.nperflevels": "2",
    "hw.perflevel0.physicalcpu": "4",
    "hw.perflevel0.logicalcpu": "4",
    "hw.perflevel1.physicalcpu": "4",
    "hw.perflevel1.logicalcpu": "4",
}


def test_mac() -> None:
    assert shape(module._of_mac(list(range(8)), M2.get)) == [
        ("big", (4, 5, 6, 7)),
        ("little", (0, 1, 2, 3)),
    ]
    older = {"hw.perflevel0.physicalcpu": None}
    assert shape(module._of_mac([0, 1], older.get)) == [("all", (0, 1))]


def test_other_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert shape(clusters(tmp_path)) == [("all", (0, 1, 2))]
