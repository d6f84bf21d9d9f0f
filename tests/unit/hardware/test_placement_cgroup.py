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


def test_no_limit(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/user.slice\n", V2)
    write_group(tmp_path / "sys/fs/cgroup/user.slice", max="max", current=5 * GB)
    assert memory(tmp_path) == Memory(8 * GB, 6 * GB, None)
    assert memory(tmp_path).usable == 8 * GB


def test_version_2_nested(tmp_path: Path) -> None:
    """The group around is the tighter one, and another one is nearest to its limit."""
    write_proc(tmp_path, "0::/box/inner\n", V2)
    top = tmp_path / "sys/fs/cgroup"
    write_group(top)
    write_group(top / "box", max=2 * GB, current=GB, stat=f"anon 1\ninactive_file {GB // 2}")
    write_group(top / "box/inner", max=3 * GB, current=int(2.5 * GB), stat="inactive_file 0")
    assert memory(tmp_path) == Memory(8 * GB, GB // 2, 2 * GB)
    assert memory(tmp_path).usable == 2 * GB


def test_caches_are_free(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/box\n", V2)
    top = tmp_path / "sys/fs/cgroup/box"
    write_group(top, max=2 * GB, current=2 * GB, stat=f"inactive_file {GB}\nactive_file 7")
    assert memory(tmp_path).free == GB


def test_a_soft_limit_counts(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/box\n", V2)
    write_group(tmp_path / "sys/fs/cgroup/box", max=4 * GB, high=3 * GB, current=0)
    assert memory(tmp_path).limit == 3 * GB


def test_version_1_nested(tmp_path: Path) -> None:
    groups = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n"
    mounts = (
        V1.replace("rw,memory", "rw,cpu,memory")
        + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    write_proc(tmp_path, groups, mounts)
    top = tmp_path / "sys/fs/cgroup/memory"
    write_group(top, limit_in_bytes=9223372036854771712, usage_in_bytes=7 * GB)
    write_group(top / "docker", limit_in_bytes=2 * GB, usage_in_bytes=GB)
    write_group(
        top / "docker/abc",
        limit_in_bytes=9223372036854771712,
        usage_in_bytes=0,
        stat="total_inactive_file 0",
    )
    assert memory(tmp_path) == Memory(8 * GB, GB, 2 * GB)


def test_a_container_that_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    """The path names groups of the host; the mount begins at the container's own."""
    mounts = V1.replace(" / /sys", " /docker/abc /sys")
    write_proc(tmp_path, "4:memory:/docker/abc\n", mounts)
    write_group(tmp_path / "sys/fs/cgroup/memory", limit_in_bytes=GB, usage_in_bytes=0)
    assert memory(tmp_path) == Memory(8 * GB, GB, GB)


def test_a_group_whose_name_only_begins_alike(tmp_path: Path) -> None:
    mounts = V1.replace(" / /sys", " /docker/abc /sys")
    write_proc(tmp_path, "4:memory:/docker/abcd\n", mounts)
    write_group(tmp_path / "sys/fs/cgroup/memory/d", limit_in_bytes=GB, usage_in_bytes=0)
    assert memory(tmp_path).limit is None


def test_other_groups_do_not_limit(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/mine\n", V2)
    write_group(tmp_path / "sys/fs/cgroup/mine", max="max", current=0)
    write_group(tmp_path / "sys/fs/cgroup/other", max=GB, current=0)
    assert memory(tmp_path).limit is None


def test_a_limit_beyond_the_machine_is_none(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/box\n", V2)
    write_group(tmp_path / "sys/fs/cgroup/box", max=9 * GB, current=0)
    assert memory(tmp_path) == Memory(8 * GB, 6 * GB, None)


def test_a_mean_path_stays_inside(tmp_path: Path) -> None:
    """A process outside the namespace has such a path; nothing beyond the mount is read."""
    write_proc(tmp_path, "0::/../../elsewhere\n", V2)
    write_group(tmp_path / "sys/fs/cgroup")
    write_group(tmp_path / "sys/elsewhere", max=GB, current=0)
    assert memory(tmp_path).limit is None


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
