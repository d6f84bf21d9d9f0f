"""What is private and what is mapped, on this machine and in a file that was written down."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest

from benchmarks.sections._loading_child import MemoryKinds, memory_kinds

MB = 1 << 20
ROLLUP = """55e0-7ffe ---p 00000000 00:00 0    [rollup]
Rss:              100 kB
Pss:               70 kB
Shared_Clean:      40 kB
Shared_Dirty:       0 kB
Private_Clean:     20 kB
Private_Dirty:     40 kB
Anonymous:         38 kB
"""


def test_a_written_file(tmp_path: Path) -> None:
    (tmp_path / "smaps_rollup").write_text(ROLLUP)
    expected = MemoryKinds(38 * 1024, 62 * 1024, 60 * 1024, 70 * 1024)
    assert memory_kinds(tmp_path) == expected


@pytest.mark.parametrize("text", ["", "rollup\nRss: 1 kB\n", "rollup\nRss: many\n"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "smaps_rollup").write_text(text)
    assert memory_kinds(tmp_path) is None
    assert memory_kinds(tmp_path / "nowhere") is None


def kinds() -> MemoryKinds:
    found = memory_kinds()
    if found is None:
        pytest.skip("no /proc/self/smaps_rollup here")
    return found


def test_own_memory_is_private_and_a_files_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 * MB))
    gc.collect()
    before = kinds()
    with (tmp_path / "file").open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    assert sum(view[:: mmap.PAGESIZE]) == 0
    read = kinds()
    assert read.mapped - before.mapped > 60 * MB
    assert read.private - before.private < 8 * MB
    own = mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(own), mmap.PAGESIZE):
        own[at] = 1
    held = kinds()
    assert held.private - read.private > 60 * MB
    assert abs(held.mapped - read.mapped) < 8 * MB
    view.close()
    own.close()
