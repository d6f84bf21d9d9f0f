"""A peer inside a control group: its memory ends where ours does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.race.children import Failed, ask
from benchmarks.sections.control_group import ControlGroup, limited

pytestmark = pytest.mark.cgroup

MB = 1 << 20
PEER = """
from pathlib import Path

def run(request, tools):
    taken = bytearray(request["bytes"])
    return {"group": Path("/proc/self/cgroup").read_text(), "taken": len(taken)}
"""


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    with limited(100 * MB) as found:
        if found is None:
            pytest.skip("no control group can be made here")
        yield found


def run(folder: Path, size: int, within: list[str]) -> dict[str, object]:
    peer = folder / "peer.py"
    peer.write_text(PEER, "utf-8")
    request = {"task": "run", "bytes": size}
    return ask(Path(sys.executable), peer, request, folder / "log", 60.0, within=within)


def test_it_runs_inside(group: ControlGroup, tmp_path: Path) -> None:
    inside, outside = (run(tmp_path, MB, within) for within in (group.entering, []))
    assert group.folder.name in str(inside["group"])
    assert group.folder.name not in str(outside["group"])


def test_its_memory_is_limited(group: ControlGroup, tmp_path: Path) -> None:
    assert run(tmp_path, 300 * MB, [])["taken"] == 300 * MB
    with pytest.raises(Failed, match="SIGKILL"):
        run(tmp_path, 300 * MB, group.entering)
