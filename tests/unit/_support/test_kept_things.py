"""What is kept: whole or absent, whoever writes and whatever is killed; folders are bounded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgedec._support import kept
from edgedec._support.kept import STATED, Folder, NoRoom, Record, Unusable, folders


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "things"


def of(key: str) -> Folder:
    return Folder("things", key)


def write(key: str, data: bytes = b"data") -> Path:
    with of(key).writing(f"what {key} is", len(data)) as folder:
        (folder / "file").write_bytes(data)
    return of(key).path


def test_it_is_there_when_it_is_whole(cache: Path) -> None:
    with of("a").writing("what", 4) as folder:
        (folder / "file").write_bytes(b"data")
        assert of("a").find() is None
    assert of("a").find() == cache / "a"
    assert [(one.kind, one.what, one.path) for one in folders()] == [
        ("things", "what", cache / "a")
    ]
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_nothing(cache: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with of("a").writing("what", 4) as folder:
            (folder / "file").write_bytes(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(cache.iterdir()) == []


WRITER = """
import sys
from edgedec._support.kept import Folder
print("ready", flush=True)
sys.stdin.readline()
with Folder("things", "a").writing("what", 1 << 20) as folder:
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


def test_two_processes_at_once_both_end_with_one_whole_folder(cache: Path) -> None:
    running = [start("wait") for _ in range(2)]
    for process in running:
        go_on(process)
        assert said(process) == "half"
    assert of("a").find() is None
    for process in running:
        go_on(process)
    assert [said(process) for process in running] == ["done", "done"]
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert [path.name for path in cache.iterdir()] == ["a"]
    assert of("a").find() == cache / "a"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_what_a_killed_process_left_is_removed_later(cache: Path) -> None:
    process = start("wait")
    go_on(process)
    assert said(process) == "half"
    process.kill()
    process.communicate()
    (left,) = cache.iterdir()
    assert of("a").find() is None
    assert [(one.kind, one.size_bytes) for one in folders()] == [("leftover", 1 << 20)]
    write("b")
    assert left.exists(), "it may be another process's, which is writing now"
    long_ago = time.time() - 3600
    for path in (left, *left.iterdir()):
        os.utime(path, (long_ago, long_ago))
    write("c")
    assert not left.exists()


def relink(folder: Path) -> None:
    (folder / "file").rename(folder.parent / "elsewhere")
    (folder / "file").symlink_to(folder.parent / "nothing")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "file").write_bytes(b"else"),  # of the same length
        lambda folder: (folder / "file").write_bytes(b"dat"),
        lambda folder: (folder / "file").unlink(),
        lambda folder: (folder / STATED).write_text("{"),
        lambda folder: (folder / STATED).unlink(),
        relink,
    ],
)
def test_a_damaged_one_gives_way(damage: Callable[[Path], object]) -> None:
    damage(write("a"))
    with pytest.raises(Unusable):
        of("a").find()
    assert of("a").usable() is None
    assert not of("a").path.exists()
    write("a", b"new")
    found = of("a").find()
    assert found is not None
    assert (found / "file").read_bytes() == b"new"


def test_files_in_folders_of_it_are_checked_too() -> None:
    with of("a").writing("what", 8) as folder:
        (folder / "in" / "it").mkdir(parents=True)
        (folder / "in" / "it" / "file").write_bytes(b"data")
    found = of("a").find()
    assert found is not None
    (one,) = folders()
    assert one.size_bytes > 4
    (found / "in" / "it" / "more").write_bytes(b"")
    with pytest.raises(Unusable, match="added"):
        of("a").find()
    (found / "in" / "it" / "more").unlink()
    (found / "in" / "it" / "file").write_bytes(b"else")
    with pytest.raises(Unusable, match="in/it/file"):
        of("a").find()


def test_another_users_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a")
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(Unusable, match="another user"):
        of("a").find()


def test_the_least_used_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for at, key in enumerate("abc"):
        path = write(key, bytes(1000))
        os.utime(path / STATED, (at, at))
    assert of("a").find() is not None  # used now
    monkeypatch.setattr(kept, "MAX_BYTES", 4200)
    write("d", bytes(1000))
    assert of("b").find() is None
    assert all(of(key).find() is not None for key in "acd")


def test_what_is_larger_than_all_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a")
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    words = r"0\.2 MB, more than the 0\.1 MB that are kept"
    with pytest.raises(NoRoom, match=words), of("b").writing("what", 100_001):
        pytest.fail("there is no room")
    assert [path.name for path in cache.iterdir()] == ["a"]


def test_what_is_required_is_limited_by_the_disk_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a", bytes(1000))
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    with of("b").writing("what", 101, required=True) as folder:
        (folder / "file").write_bytes(bytes(101))
    assert [path.name for path in cache.iterdir()] == ["b"]
    free = shutil.disk_usage(cache).free
    with (
        pytest.raises(NoRoom, match="free on the disk"),
        of("c").writing("what", 10 * free, required=True),
    ):
        pytest.fail("there is no room")


def test_other_folders_are_left_alone(cache: Path) -> None:
    write("a")
    for other in (cache / "mine", cache.parent / "Mine" / "b", cache / ".hidden"):
        other.mkdir(parents=True)
        (other / "file").write_text("mine")
    (cache.parent / "linked").symlink_to(cache)
    assert [one.path for one in folders()] == [cache / "a"]


# -- records ------------------------------------------------------------------------------------

RECORD = Record("checks", "gguf")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "edgedec"


@pytest.mark.skipif(os.name == "nt", reason="files have no such modes there")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_record_has_the_mode_of_any_new_file(home: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        assert RECORD.write({"a": 1})
    finally:
        os.umask(before)
    assert RECORD.file.stat().st_mode & 0o777 == mode
    assert home.stat().st_mode & 0o777 == 0o700


CONTENT = {"numbers": [0.1, 1e-300, 3], "text": "\u00e9 \ud800"}


def test_a_record_is_read_as_it_was_written_or_as_an_earlier_version_wrote_it(home: Path) -> None:
    assert RECORD.read() is None
    assert RECORD.write(CONTENT, "what")
    assert RECORD.read() == CONTENT
    RECORD.file.write_text('{"format": 1, "opened": {}}')
    assert RECORD.read() == {"format": 1, "opened": {}}
    assert RECORD.remove()
    assert not RECORD.remove()


def test_any_other_number_in_it_is_noticed(home: Path) -> None:
    RECORD.write(CONTENT)
    whole = RECORD.file.read_text()
    begin = whole.index("numbers")
    digits = [at for at, one in enumerate(whole) if at > begin and one.isdigit()]
    for at in digits:
        other = str((int(whole[at]) + 1) % 10)
        RECORD.file.write_text(whole[:at] + other + whole[at + 1 :])
        with pytest.raises(Unusable, match="is damaged"):
            RECORD.read()
    RECORD.file.write_text(whole)
    assert RECORD.read() == CONTENT


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\x00" * 50, b"[]", b"[" * 100_000, b'{"content": 3}', b'{"content": {}}'],
)
def test_a_damaged_record_cannot_be_used_and_is_replaced(home: Path, data: bytes) -> None:
    home.mkdir(parents=True)
    RECORD.file.write_bytes(data)
    with pytest.raises(Unusable, match="is damaged"):
        RECORD.read()
    assert RECORD.write(CONTENT)
    assert RECORD.read() == CONTENT
    assert [path.name for path in home.iterdir()] == ["opened-gguf.json"]


def test_an_oversized_record_is_not_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RECORD.write(CONTENT)
    monkeypatch.setattr(kept, "MAX_RECORD_BYTES", 50)
    with pytest.raises(Unusable, match="larger than"):
        RECORD.read()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_fifo_in_place_of_a_record_is_not_waited_for(home: Path) -> None:
    home.mkdir(parents=True)
    os.mkfifo(RECORD.file)
    with pytest.raises(Unusable, match="not a regular file"):
        RECORD.read()


def test_where_nothing_can_be_kept_nothing_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.parent.mkdir()
    home.write_text("no folder")
    assert not RECORD.write(CONTENT)
    assert RECORD.read() is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", _no_home)
    assert not RECORD.write(CONTENT)
    assert RECORD.read() is None


def _no_home() -> Path:
    raise RuntimeError("no home")
