"""Pages of mapped files are given back, and only those that cannot have been changed."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mapped_files import held_of

from edgedec.hardware import resident
from edgedec.hardware.resident import drop_pages
from edgedec.loading.sessions import Meter

SIZE = 4 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@contextmanager
def mapped(file: Path, access: int) -> Iterator[mmap.mmap]:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0, access=access) as memory:
        assert sum(memory[:: mmap.PAGESIZE]) >= 0  # every page is read
        yield memory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "weights of a model.data"
    found.write_bytes(bytes(range(256)) * (SIZE // 256))
    return found


@linux
def test_what_is_mapped_to_be_read_is_given_back_and_can_be_read_again(file: Path) -> None:
    with mapped(file, mmap.ACCESS_READ) as memory:
        assert held_of(file) >= SIZE
        drop_pages(file)
        assert held_of(file) == 0
        assert memory[:] == file.read_bytes()
        assert held_of(file) >= SIZE


@linux
@pytest.mark.parametrize("access", [mmap.ACCESS_COPY, mmap.ACCESS_WRITE])
def test_what_may_have_been_changed_is_kept(file: Path, access: int) -> None:
    with mapped(file, access) as memory:
        memory[SIZE // 2] = 255
        before = held_of(file)
        drop_pages(file)
        assert held_of(file) == before
        assert memory[SIZE // 2] == 255


@linux
def test_another_file_is_left_alone(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    with mapped(file, mmap.ACCESS_READ), mapped(other, mmap.ACCESS_READ):
        drop_pages(other)
        assert held_of(file) >= SIZE
        assert held_of(other) == 0


@linux
def test_a_file_that_is_gone_drops_nothing(file: Path) -> None:
    with mapped(file, mmap.ACCESS_READ):
        drop_pages(file.with_name("none"))
        assert held_of(file) >= SIZE


def test_elsewhere_nothing_happens(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident.sys, "platform", "darwin")
    monkeypatch.setattr(resident, "_RANGES", Path("/not/there"))
    with mapped(file, mmap.ACCESS_READ) as memory:
        drop_pages(file)
        assert memory[:4] == b"\0\1\2\3"


@linux
@pytest.mark.parametrize("counting", [True, False])
@pytest.mark.usefixtures("full_measurements")
def test_what_a_model_has_mapped_and_not_read_is_counted_for_it(file: Path, counting: bool) -> None:
    meter = Meter(counting=counting)
    with mapped(file, mmap.ACCESS_READ):
        meter.mark("read")
        drop_pages(file)
        meter.mark("not read")
        assert meter.unread("read") == 0
        assert meter.unread("not read") == (SIZE if counting else 0)
