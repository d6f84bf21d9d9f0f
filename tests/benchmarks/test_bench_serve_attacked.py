"""The bench of a server under attack: ours keeps its promises, one that blocks is flagged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette not installed: install the extra serve")
if not Path("/proc/self/status").exists():
    pytest.skip("needs Linux's /proc", allow_module_level=True)

import blocking_server

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import serve_attacked, serve_clients
from benchmarks.sections.serve import started
from benchmarks.sections.serve_attacked import ATTACKS, Scale
from benchmarks.sections.serve_clients import Health, Stream, status
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.models.demo import heldout

CHECKPOINTS = Path(heldout.__file__).parent
# Times are not promised here: other tests may keep the machine busy.
SMALL = Scale(
    refused=5, within_memory=5, unfinished=20, silent=300, streams=2, promised_s=60, settles_s=0,
    mixed=48, mixed_s=0, grown_bytes=200_000_000,
)  # fmt: skip


def test_every_promise_is_kept(tmp_path: Path) -> None:
    records: list[Row] = []
    suite = Suite(Bundles(CHECKPOINTS, tmp_path), tmp_path, prompts=1, threads=1)
    rows = serve_attacked.run(suite, Recorder(records.append, "serve_attacked"), SMALL)
    assert [one["attack"] for one in records] == list(ATTACKS)
    assert all(row["holds"] for row in rows), rows
    refused, within, unfinished, silent, mixed, ended = rows
    assert min(mixed["visits"].values()) >= 2
    assert mixed["became"]["broken JSON: 400"] > 0
    assert mixed["health_requests"] > 0
    assert min(refused[name] for name in ("health_requests", "stream_events", "requests")) > 0
    assert sum(refused["statuses"].values()) == sum(within["statuses"].values()) == 5
    assert within["before_bytes"] < within["peak_bytes"] < within["memory"]
    assert unfinished["sent_whole"] == 20
    assert silent["left_open"] < 300 - 1
    assert ended["ended_with_error_and_done"] == 2


@pytest.mark.parametrize("name", ATTACKS)
def test_a_server_that_blocks_is_flagged(name: str) -> None:
    scale = Scale(
        refused=3, within_memory=3, unfinished=12, silent=12, mixed=24, mixed_s=0, streams=2,
        settles_s=0, memory=50_000_000, patience_s=2,
    )  # fmt: skip
    with started([sys.executable, blocking_server.__file__]) as running:
        row = ATTACKS[name](running, scale)
    assert not row["holds"]
    found: dict[str, Any] = {
        "bodies that are refused": row.get("health_s", 0) > blocking_server.HELD_S / 2
        and row.get("gap_s", 0) > blocking_server.HELD_S / 2,
        "bodies that are refused, --memory": row.get("peak_bytes", 0) > 3 * 10 * scale.body_bytes,
        "unfinished bodies": row.get("request_meanwhile_s", 0) is None,
        "silent connections": row.get("request_s", 0) is None,
        "a mix": row.get("failed", 0) > 0
        or row.get("health_s", 0) > scale.promised_s
        or row.get("every_kind_came", True) is False,
        "SIGTERM with streams": row.get("traceback") and not row.get("ended_with_error_and_done"),
    }
    assert found[name], row


def test_a_wait_that_has_no_end_counts() -> None:
    client = Health("localhost:0", patience_s=1)
    client.times.append(0.25)
    assert client.longest_s() == 0.25
    client.asked_at = 0.0
    assert client.longest_s() > 0.25


def test_a_text_that_fails_counts() -> None:
    with started([sys.executable, blocking_server.__file__]) as running:
        with Stream(running.address, {"prompt": [5], "max_tokens": 9}, patience_s=30) as client:
            running.process.kill()
            client.join()
        assert client.failed == 1
        assert not client.ended_in_order()
        assert status(running.address, "GET", "/health", b"", 30) == 0


def test_a_server_that_does_not_start_is_named() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no model')"]
    with pytest.raises(EdgedecError, match="no model"), started(command):
        pass


def test_every_body_is_large_and_too_long_in_its_own_way() -> None:
    bodies = serve_clients.refused(3_900_000)
    assert len({content for _, content in bodies}) == len(bodies) == 5
    for _, content in bodies:
        assert 0.97 < len(content) / 3_900_000 < 1.03
        assert json.loads(content)


def test_the_limit_on_open_files_is_put_back() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low := 512, hard))
    try:
        with serve_attacked._files(low):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > low
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == low
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(EdgedecError, match="open files"), serve_attacked._files(hard):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
