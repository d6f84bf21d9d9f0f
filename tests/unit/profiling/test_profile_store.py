"""Profiles between runs: what holds, what is stale, what is damaged."""

import dataclasses
import json
import multiprocessing
from pathlib import Path

import pytest

from edgedec.profiling import store
from edgedec.profiling.store import Identity
from edgedec.records.place import Place
from edgedec.records.profile import SCHEMA, Contention, Measured, Parity, PassTimes, Profile
from edgedec.records.rounds import DrafterRounds, Drafts

IDENTITY = Identity("/models/pair", {"cpu": "some", "machine": "a1"}, "b2", {"numpy": "2"})


def profile(name: str = "target") -> Profile:
    times = (PassTimes(32, (1, 2), (0.01, 0.015), (0.0, 0.1)),)
    measured = Measured(
        "target", name, Place("onnx", threads=2, cores=(0, 1)), times, 1e-3, 0.5,
        10**8, 10**7, 8192, 4096, 512, None, None, Parity(1.0, 0.0, True), True,
    )  # fmt: skip
    drafts = Drafts("lookup", 0.25, (0.75, 0.125), 2.0)
    rounds = DrafterRounds("lookup", 2, 0.8, 100, 1.5, 1.75, 0.0, 1e-4, (drafts,))
    return Profile(
        SCHEMA, dict(IDENTITY.machine), IDENTITY.bundle, dict(IDENTITY.versions), (measured,),
        (rounds,), 1e-5, notes=("one",), contention=(Contention("a", "b", 1.1, 1.0),),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.FOLDER, str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def test_what_was_written_is_read() -> None:
    assert store.read(IDENTITY) == store.Found(None)
    assert store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile == profile()


def test_nothing_but_the_file_is_left(folder: Path) -> None:
    store.write(IDENTITY, profile("first"))
    store.write(IDENTITY, profile("second"))
    (file,) = folder.iterdir()
    assert file == store.file_of(IDENTITY)
    assert store.read(IDENTITY).profile == profile("second")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bundle": "other"}, "files changed"),
        ({"versions": {"numpy": "3"}}, "numpy was 2, is 3"),
        ({"versions": {"numpy": "2", "onnxruntime": "1"}}, "onnxruntime 1 is new"),
    ],
)
def test_a_stale_profile_says_what_changed(changes: dict, reason: str) -> None:
    store.write(IDENTITY, profile())
    found = store.read(dataclasses.replace(IDENTITY, **changes))
    assert found.profile is None
    assert reason in found.reason


def test_a_profile_of_another_machine_is_refused_wherever_it_was_copied() -> None:
    store.write(IDENTITY, profile())
    here = dataclasses.replace(IDENTITY, machine={"cpu": "some", "machine": "zz"})
    assert store.read(here) == store.Found(None)
    store.file_of(IDENTITY).rename(store.file_of(here))
    assert "another machine" in store.read(here).reason


def test_a_part_of_a_machine_does_not_take_the_whole_ones_place(folder: Path) -> None:
    """As in a container, or under taskset."""
    part = dataclasses.replace(IDENTITY, machine={"cpu": "some", "cores": "1", "machine": "a1"})
    own = dataclasses.replace(profile("of a part"), machine=dict(part.machine))
    store.write(IDENTITY, profile())
    assert store.read(part) == store.Found(None)
    store.write(part, own)
    assert store.read(IDENTITY).profile == profile()
    assert store.read(part).profile == own
    store.file_of(IDENTITY).rename(store.file_of(part))
    assert "cores 1 is new" in store.read(part).reason


def damaged() -> dict[str, bytes]:
    from edgedec._support.fields import to_json

    raw = to_json(profile())
    whole = json.dumps(raw).encode()
    wrong = {**raw, "measured": [{**raw["measured"][0], "prefill_s": "fast"}]}
    return {
        "empty": b"",
        "truncated": whole[:-40],
        "binary": b"\xff\x00" * 50,
        "deep": b"[" * 100_000,
        "a list": b"[]",
        "a field of another type": json.dumps(wrong).encode(),
        "a field missing": json.dumps({k: v for k, v in raw.items() if k != "measured"}).encode(),
        "a number no float holds": whole.replace(b"0.015", b"1" + b"0" * 400),
        "no times": _with(raw, "measured", times=[]),
        "no seconds": whole.replace(b"[0.01, 0.015]", b"[0.01]"),
        "zero seconds": whole.replace(b"[0.01, 0.015]", b"[0, 0.015]"),
        "negative seconds": whole.replace(b"[0.01, 0.015]", b"[0.01, -0.015]"),
        "widths in disorder": whole.replace(b"[1, 2]", b"[2, 1]"),
        "contexts in disorder": _with(raw, "measured", times=2 * raw["measured"][0]["times"]),
        "negative overhead": json.dumps({**raw, "draft_overhead_s": -1e-4}).encode(),
        "no slowing": _with(raw, "contention", draft_factor=0.0),
        "no rounds": _with(raw, "rounds", rounds=0),
        "less than a token a round": _with(raw, "rounds", tokens=0.5),
        "a draft of nothing": whole.replace(b'0.125], "nodes": 2.0', b'0.125], "nodes": 0.0'),
        "a negative length": _with(raw, "rounds", draft_length=-1),
        "negative time": _with(raw, "rounds", overhead_s=-1e-4),
        "more than certain": whole.replace(b"[0.75, 0.125]", b"[1.75, 0.125]"),
        "a role of none": _with(raw, "measured", role="both"),
        "not finite": whole.replace(b"0.015", b"NaN"),
    }


def _with(raw: dict, part: str, **changes: object) -> bytes:
    """With other fields of the first of a part."""
    return json.dumps({**raw, part: [{**raw[part][0], **changes}]}).encode()


@pytest.mark.parametrize("how", damaged())
def test_a_damaged_profile_is_none_and_is_replaced(how: str) -> None:
    store.write(IDENTITY, profile())
    assert damaged()[how] != store.file_of(IDENTITY).read_bytes()
    store.file_of(IDENTITY).write_bytes(damaged()[how])
    found = store.read(IDENTITY)
    assert found.profile is None
    assert found.reason
    assert "\n" not in found.reason
    store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile == profile()


def test_an_oversized_profile_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(IDENTITY, profile())
    monkeypatch.setattr(store, "MAX_BYTES", 200)
    assert "larger than" in store.read(IDENTITY).reason


def test_one_of_another_schema_is_measured_again() -> None:
    store.write(IDENTITY, dataclasses.replace(profile(), schema=SCHEMA + 1))
    assert "another version" in store.read(IDENTITY).reason


def test_a_folder_that_cannot_be_written_costs_time_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file")
    assert not store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile is None
    monkeypatch.delenv(store.FOLDER)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert not store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile is None


def _no_home() -> Path:
    raise RuntimeError("no home")


def test_a_profile_that_cannot_be_told_leaves_the_old_one(folder: Path) -> None:
    store.write(IDENTITY, profile())
    with pytest.raises(ValueError):
        store.write(IDENTITY, dataclasses.replace(profile(), draft_overhead_s=float("nan")))
    assert store.read(IDENTITY).profile == profile()
    assert len(list(folder.iterdir())) == 1


def _write(number: int) -> None:
    for turn in range(20):
        store.write(IDENTITY, profile(f"writer {number} {turn}"))


def test_many_writers_leave_one_whole_profile(folder: Path) -> None:
    writers = [
        multiprocessing.get_context("fork").Process(target=_write, args=(n,)) for n in (1, 2)
    ]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        found = store.read(IDENTITY)
        seen += found.profile is not None
        assert not found.reason  # never a half-written one
    for writer in writers:
        writer.join()
    assert seen
    assert store.read(IDENTITY).profile is not None
    assert len(list(folder.iterdir())) == 1
