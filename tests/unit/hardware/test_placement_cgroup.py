"""A container's part of the machine: memory and processors within control groups."""

from pathlib import Path

import pytest

from edgedec.hardware import cgroup
from edgedec.hardware.device import available_cores
from edgedec.hardware.machine import Memory, memory

GB = 1 << 30


def write_proc(root: Path, groups: str, mounts: str, total: int = 8, free: int = 6) -> Path:
    """What Linux says of a machine with so many GB."""
    folder = root / "proc/self"
    folder.mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {total << 20} kB\nMemFree: 1 kB\nMemAvailable: {free << 20} kB\n", "ascii"
    )
    (folder / "cgroup").write_text(groups, "utf-8")
    (folder / "mountinfo").write_text(mounts, "utf-8")
    return root


def write_group(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / f"memory.{name}").write_text(f"{value}\n", "ascii")


V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"


UNLIMITED = 9223372036854771712
OWN_TOP = V1.replace(" / /sys", " /docker/abc /sys")  # the mount begins at the container's group
GROUPS: dict[str, tuple[str, str, dict[str, dict[str, object]], Memory]] = {
    "no limit": ("0::/user.slice\n", V2, {"user.slice": {"max": "max", "current": 5 * GB}},
                 Memory(8 * GB, 6 * GB, None)),
    # The group around is the tighter one, and another one is nearest to its limit.
    "version 2, nested": (
        "0::/box/inner\n", V2,
        {"": {}, "box": {"max": 2 * GB, "current": GB, "stat": f"anon 1\ninactive_file {GB // 2}"},
         "box/inner": {"max": 3 * GB, "current": int(2.5 * GB), "stat": "inactive_file 0"}},
        Memory(8 * GB, GB // 2, 2 * GB)),
    "caches are free": (
        "0::/box\n", V2, {"box": {"max": 2 * GB, "current": 2 * GB,
                                  "stat": f"inactive_file {GB}\nactive_file 7"}},
        Memory(8 * GB, GB, 2 * GB)),
    "a soft limit counts": (
        "0::/box\n", V2, {"box": {"max": 4 * GB, "high": 3 * GB, "current": 0}},
        Memory(8 * GB, 3 * GB, 3 * GB)),
    "version 1, nested": (
        "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
        V1.replace("rw,memory", "rw,cpu,memory")
        + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        {"memory": {"limit_in_bytes": UNLIMITED, "usage_in_bytes": 7 * GB},
         "memory/docker": {"limit_in_bytes": 2 * GB, "usage_in_bytes": GB},
         "memory/docker/abc": {"limit_in_bytes": UNLIMITED, "usage_in_bytes": 0,
                               "stat": "total_inactive_file 0"}},
        Memory(8 * GB, GB, 2 * GB)),
    # The path names groups of the host.
    "a container that sees its own group as the top": (
        "4:memory:/docker/abc\n", OWN_TOP, {"memory": {"limit_in_bytes": GB, "usage_in_bytes": 0}},
        Memory(8 * GB, GB, GB)),
    "a group whose name only begins alike": (
        "4:memory:/docker/abcd\n", OWN_TOP,
        {"memory/d": {"limit_in_bytes": GB, "usage_in_bytes": 0}}, Memory(8 * GB, 6 * GB, None)),
    "other groups do not limit": (
        "0::/mine\n", V2,
        {"mine": {"max": "max", "current": 0}, "other": {"max": GB, "current": 0}},
        Memory(8 * GB, 6 * GB, None)),
    "a limit beyond the machine is none": (
        "0::/box\n", V2, {"box": {"max": 9 * GB, "current": 0}}, Memory(8 * GB, 6 * GB, None)),
    # A process outside the namespace has such a path; nothing beyond the mount is read.
    "a mean path stays inside": (
        "0::/../../elsewhere\n", V2, {"": {}, "../../elsewhere": {"max": GB, "current": 0}},
        Memory(8 * GB, 6 * GB, None)),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "mounts", "values", "found"), GROUPS.values(), ids=GROUPS)
def test_a_container_s_memory(
    groups: str, mounts: str, values: dict[str, dict[str, object]], found: Memory, tmp_path: Path
) -> None:
    write_proc(tmp_path, groups, mounts)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for name, each in values.items():
        write_group(tmp_path / "sys/fs/cgroup" / name, **each)
    assert memory(tmp_path) == found
    assert memory(tmp_path).usable == (found.limit or 8 * GB)


CPU_V1 = "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"


def write_quota(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / f"cpu.{name}").write_text(f"{value}\n", "ascii")


def test_a_containers_share_of_the_processor(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/box/inner\n", V2)
    top = tmp_path / "sys/fs/cgroup"
    write_quota(top / "box/inner", max="max 100000")
    assert cgroup.processors(tmp_path) is None
    write_quota(top / "box", max="150000 100000")
    assert cgroup.processors(tmp_path) == 1.5
    write_quota(top / "box/inner", max="50000 100000")
    assert cgroup.processors(tmp_path) == 0.5
    write_quota(top / "other", max="1000 100000")
    assert cgroup.processors(tmp_path) == 0.5


def test_a_share_in_version_1(tmp_path: Path) -> None:
    write_proc(tmp_path, "4:memory:/elsewhere\n2:cpu,cpuacct:/box\n", V1 + CPU_V1)
    folder = tmp_path / "sys/fs/cgroup/cpu"
    write_quota(folder, cfs_quota_us=-1, cfs_period_us=100000)
    assert cgroup.processors(tmp_path) is None
    write_quota(folder / "box", cfs_quota_us=200000, cfs_period_us=100000)
    assert cgroup.processors(tmp_path) == 2.0


@pytest.mark.parametrize("text", ["", "max", "-5 100", "1 0", "0 100000", "a b", "1 2 3"])
def test_a_damaged_share_is_none(tmp_path: Path, text: str) -> None:
    write_proc(tmp_path, "0::/\n", V2)
    write_quota(tmp_path / "sys/fs/cgroup", max=text)
    assert cgroup.processors(tmp_path) is None


@pytest.mark.parametrize(("share", "cores"), [(None, 8), (2.0, 2), (2.1, 3), (0.2, 1), (99.0, 8)])
def test_cores_within_the_share(
    share: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cgroup, "processors", lambda: share)
    assert available_cores() == cores


def test_without_proc(tmp_path: Path) -> None:
    found = memory(tmp_path)
    assert found.free is found.limit is None


@pytest.mark.cgroup
def test_a_real_group(tmp_path: Path) -> None:
    """The limit of a group that was just made, as the system itself tells it."""
    import os
    import subprocess
    import sys

    root = Path("/sys/fs/cgroup")
    v1 = (root / "memory").is_dir()
    group = (root / "memory" if v1 else root) / f"edgedec-test-{os.getpid()}"
    inner = group / "inner"
    inner.mkdir(parents=True)
    try:
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(300 << 20))
        ask = (
            f"import os; open({str(inner / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "from edgedec.hardware.machine import memory; print(memory().limit, memory().free)"
        )
        done = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, check=True
        )
        limit, free = map(int, done.stdout.split())
        assert limit == 300 << 20
        assert 100 << 20 < free < limit
    finally:
        inner.rmdir()
        group.rmdir()
