"""Memory within control groups, and the facts that measurements hold for."""

import hashlib
from importlib import metadata
from pathlib import Path

import pytest

from edgedec.placement import cgroup, machine
from edgedec.placement.clusters import Cluster
from edgedec.placement.device import available_cores
from edgedec.placement.machine import Memory, difference, machine_facts, memory, runtime_versions

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
            "from edgedec.placement.machine import memory; print(memory().limit, memory().free)"
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


# -- facts --------------------------------------------------------------------------------------


def test_facts_are_words_and_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = machine_facts()
    assert facts == machine_facts()
    assert set(facts) == {"cpu", "cores", "memory", "system", "machine"}
    assert all(isinstance(value, str) for value in facts.values())
    # What comes and goes is no fact of the machine.
    monkeypatch.setattr(machine, "memory", lambda: Memory(memory().total, 1, None))
    assert facts == machine_facts()
    monkeypatch.setattr(machine, "memory", lambda: Memory(GB, 1, None))
    assert machine_facts()["memory"] == "1 GB" != facts["memory"]


@pytest.mark.parametrize(
    ("told", "sold"),
    [(3.71, "4 GB"), (7.63, "8 GB"), (15.4, "16 GB"), (15.6, "16 GB"), (11.5, "12 GB"),
     (23.54, "24 GB"), (0.45, "0.5 GB"), (62.7, "64 GB"), (5.6, "6 GB")],
)  # fmt: skip
def test_memory_as_it_is_sold(told: float, sold: str) -> None:
    """A new kernel keeps a little more or less; that is no other machine."""
    assert machine._rounded(int(told * GB)) == sold
    assert machine._rounded(int(told * 2 * GB)) != sold
    assert machine._rounded(None) == "unknown"


def test_nothing_private_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_machine_id", lambda: "3d1219c7c4c5404a")
    stored = machine_facts()["machine"]
    assert len(stored) == 16
    assert "3d1219c7c4c5404a" not in stored
    # Nor the plain hash, which could be looked up.
    assert stored != hashlib.sha256(b"3d1219c7c4c5404a").hexdigest()[:16]
    monkeypatch.setattr(machine, "_machine_id", lambda: "another")
    assert machine_facts()["machine"] != stored
    monkeypatch.setattr(machine, "_machine_id", lambda: "")
    assert machine_facts()["machine"] == ""


def test_the_maker_of_a_raspberry_pi_and_of_an_intel(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    file = tmp_path / "proc/cpuinfo"
    file.write_text(
        "processor\t: 0\nFeatures : asimd\n\nModel\t: Raspberry Pi 5 Model B\n", "utf-8"
    )
    assert machine.cpu_fields(tmp_path)["model"] == "Raspberry Pi 5 Model B"
    file.write_text("model\t\t: 167\nmodel name\t: Intel(R) Xeon(R)\nmodel name : x\n", "utf-8")
    assert machine.cpu_fields(tmp_path) == {"model name": "Intel(R) Xeon(R)"}


def test_clusters_in_words() -> None:
    phone = Cluster((4, 5, 6), (4, 5, 6), 2420.0, 871, "middle")
    assert machine.describe(phone) == "3 middle cores at 2420 MHz"
    assert machine.describe(Cluster((0,), (0, 1), None, None, "all")) == "1 core of 2 threads"


def test_versions_name_what_computes() -> None:
    found = runtime_versions()
    assert found["edgedec"]
    assert found["onnxruntime"].startswith(metadata.version("onnxruntime") + "+")
    assert found["numpy"].startswith(metadata.version("numpy"))
    assert list(found) == sorted(found)
    assert "click" not in found


class Installed:
    """A distribution on disk, as ``importlib.metadata`` finds it."""

    def __init__(self, name: str | None, version: str, record: str) -> None:
        self.name, self.version, self.record = name, version, record

    def read_text(self, _: str) -> str:
        return self.record


def versions_of(monkeypatch: pytest.MonkeyPatch, *installed: Installed) -> dict[str, str]:
    monkeypatch.setattr(metadata, "distributions", lambda: list(installed))
    return runtime_versions()


def test_another_build_under_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    name, version = "llama_cpp_python", "0.3.36"
    plain = versions_of(monkeypatch, Installed(name, version, "lib/libggml.so,sha256=aa,1\n"))
    other = versions_of(monkeypatch, Installed(name, version, "lib/libggml.so,sha256=bb,1\n"))
    assert plain["llama-cpp-python"].startswith("0.3.36+")
    assert plain != other
    compiled = Installed(name, version, "x.pyc,,\nlib/libggml.so,sha256=aa,1\n")
    assert versions_of(monkeypatch, compiled) == plain


def test_which_packages_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = versions_of(
        monkeypatch,
        Installed("onnxruntime-ep-openvino", "1.8.1", ""),
        Installed("onnxruntime_gpu", "1.31", ""),
        Installed("onnxruntime_gpu", "1.2", ""),  # an older one, further on the path
        Installed("onnx", "1.23", ""),
        Installed(None, "1", ""),
    )
    assert found == {"onnxruntime-ep-openvino": "1.8.1", "onnxruntime-gpu": "1.31"}


def test_difference_in_one_line() -> None:
    before = {"cpu": "A", "memory": "8 GB", "machine": "12", "old": "1"}
    assert difference(before, dict(before)) == ""
    now = {"cpu": "B", "memory": "8 GB", "machine": "34", "new": "2"}
    said = difference(before, now)
    assert said == "cpu was A, is B; another machine; new 2 is new; old 1 is gone"
    assert "memory" not in said
