"""Large folders in the cache: whole or absent, whoever writes and whatever is killed; bounded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgedec._support import disk_cache
from edgedec._support.disk_cache import DiskCache, NoRoom, entries
from edgedec._support.stated import STATED, Unusable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "things"


@pytest.fixture
def disk() -> DiskCache:
    return DiskCache("things")


def write(disk: DiskCache, key: str, data: bytes = b"data") -> Path:
    with disk.writing(key, f"what {key} is", len(data)) as folder:
        (folder / "file").write_bytes(data)
    return disk.folder / key


def test_it_is_there_when_it_is_whole(disk: DiskCache, cache: Path) -> None:
    with disk.writing("a", "what", 4) as folder:
        (folder / "file").write_bytes(b"data")
        assert disk.find("a") is None
    assert disk.find("a") == cache / "a"
    assert [(one.kind, one.what, one.path) for one in entries()] == [
        ("things", "what", cache / "a")
    ]
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_nothing(
    disk: DiskCache, cache: Path, error: type[BaseException]
) -> None:
    def fail() -> None:
        with disk.writing("a", "what", 4) as folder:
            (folder / "file").write_bytes(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(cache.iterdir()) == []


WRITER = """
import sys
from edgedec._support.disk_cache import DiskCache
print("ready", flush=True)
sys.stdin.readline()
with DiskCache("things").writing("a", "what", 1 << 20) as folder:
    (folder / "file").write_bytes(b"x" * (1 << 20))
    if sys.argv[1] == "wait":
        print("half", flush=True)
        sys.stdin.readline()
print("done", flush=True)
"""


def start(how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert said(process) == "ready"
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_at_once_both_end_with_one_whole_folder(disk: DiskCache, cache: Path) -> None:
    running = [start("wait") for _ in range(2)]
    for process in running:
        go_on(process)
        assert said(process) == "half"
    assert disk.find("a") is None
    for process in running:
        go_on(process)
    assert [said(process) for process in running] == ["done", "done"]
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert [path.name for path in cache.iterdir()] == ["a"]
    assert disk.find("a") == cache / "a"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_what_a_killed_process_left_is_removed_later(disk: DiskCache, cache: Path) -> None:
    process = start("wait")
    go_on(process)
    assert said(process) == "half"
    process.kill()
    process.communicate()
    (left,) = cache.iterdir()
    assert disk.find("a") is None
    assert [(one.what, one.size_bytes) for one in entries()] == [("", 1 << 20)]
    write(disk, "b")
    assert left.exists(), "it may be another process's, which is writing now"
    long_ago = time.time() - 3600
    for path in (left, *left.iterdir()):
        os.utime(path, (long_ago, long_ago))
    write(disk, "c")
    assert not left.exists()


def test_a_damaged_one_gives_way(disk: DiskCache) -> None:
    (write(disk, "a") / "file").write_bytes(b"else")
    with pytest.raises(Unusable):
        disk.find("a")
    write(disk, "a", b"new")
    found = disk.find("a")
    assert found is not None
    assert (found / "file").read_bytes() == b"new"


def test_files_in_folders_of_it_are_checked_too(disk: DiskCache) -> None:
    with disk.writing("a", "what", 8) as folder:
        (folder / "in" / "it").mkdir(parents=True)
        (folder / "in" / "it" / "file").write_bytes(b"data")
    found = disk.find("a")
    assert found is not None
    (one,) = entries()
    assert one.size_bytes > 4
    (found / "in" / "it" / "more").write_bytes(b"")
    with pytest.raises(Unusable, match="added"):
        disk.find("a")
    (found / "in" / "it" / "more").unlink()
    (found / "in" / "it" / "file").write_bytes(b"else")
    with pytest.raises(Unusable, match="in/it/file"):
        disk.find("a")


def test_another_users_is_not_used(disk: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(disk, "a")
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(Unusable, match="another user"):
        disk.find("a")


def test_the_least_used_leave_first(disk: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, key in enumerate("abc"):
        path = write(disk, key, bytes(1000))
        os.utime(path / STATED, (at, at))
    assert disk.find("a") is not None  # used now
    monkeypatch.setattr(disk_cache, "MAX_BYTES", 4200)
    write(disk, "d", bytes(1000))
    assert disk.find("b") is None
    assert all(disk.find(key) is not None for key in "acd")


def test_what_is_larger_than_all_is_refused(
    disk: DiskCache, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, "a")
    monkeypatch.setattr(disk_cache, "MAX_BYTES", 100)
    words = r"0\.2 MB, more than the 0\.1 MB that are kept"
    with pytest.raises(NoRoom, match=words), disk.writing("b", "what", 100_001):
        pytest.fail("there is no room")
    assert [path.name for path in cache.iterdir()] == ["a"]


def test_what_is_required_is_limited_by_the_disk_alone(
    disk: DiskCache, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, "a", bytes(1000))
    monkeypatch.setattr(disk_cache, "MAX_BYTES", 100)
    with disk.writing("b", "what", 101, required=True) as folder:
        (folder / "file").write_bytes(bytes(101))
    assert [path.name for path in cache.iterdir()] == ["b"]
    free = shutil.disk_usage(cache).free
    with (
        pytest.raises(NoRoom, match="free on the disk"),
        disk.writing("c", "what", 10 * free, required=True),
    ):
        pytest.fail("there is no room")


def test_other_folders_are_left_alone(disk: DiskCache, cache: Path) -> None:
    write(disk, "a")
    for other in (cache / "mine", cache.parent / "Mine" / "b", cache / ".hidden"):
        other.mkdir(parents=True)
        (other / "file").write_text("mine")
    (cache.parent / "linked").symlink_to(cache)
    assert [one.path for one in entries()] == [cache / "a"]
