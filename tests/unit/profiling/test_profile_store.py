"""Profiles between runs: what holds, what is stale, what is damaged."""

import dataclasses
import json
import multiprocessing
from pathlib import Path

import pytest

from edgedec._support.fields import to_json
from edgedec._support.kept import Record
from edgedec.profiling import store
from edgedec.profiling.store import Identity
from edgedec.records.place import Place
from edgedec.records.profile import SCHEMA, Contention, Measured, Parity, PassTimes, Profile
from edgedec.records.rounds import DrafterRounds, Drafts

IDENTITY = Identity("/models/pair", {"cpu": "some", "machine": "a1"}, "b2", {"numpy": "2"})


def of(identity: Identity) -> Record:
    return Record("profile", store.key_of(identity))


RECORD = of(IDENTITY)


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
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def test_what_was_written_is_read() -> None:
    assert store.read(IDENTITY) == store.Found(None)
    assert store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile == profile()


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
    RECORD.file.rename(of(here).file)
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
    RECORD.file.rename(of(part).file)
    assert "cores 1 is new" in store.read(part).reason


def test_a_damaged_profile_is_none_and_is_replaced() -> None:
    store.write(IDENTITY, profile())
    RECORD.file.write_bytes(RECORD.file.read_bytes()[:-40])
    assert "damaged" in store.read(IDENTITY).reason
    RECORD.write(to_json(profile()) | {"measured": 3})
    assert "damaged" in store.read(IDENTITY).reason
    store.write(IDENTITY, profile())  # the control
    assert store.read(IDENTITY).profile == profile()


def test_one_of_another_schema_is_measured_again() -> None:
    store.write(IDENTITY, dataclasses.replace(profile(), schema=SCHEMA + 1))
    assert "another version" in store.read(IDENTITY).reason
    # The last version wrote the profile alone, without a hash.
    RECORD.file.write_text(json.dumps(to_json(profile()) | {"schema": 5}))
    assert "another version" in store.read(IDENTITY).reason


def test_a_folder_that_cannot_be_written_costs_time_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file")
    assert not store.write(IDENTITY, profile())
    assert store.read(IDENTITY).profile is None


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
