"""Packed weights: the same bits, never those of another model, and a line where they fail."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_logits import logits
from tiny_models import write_tiny_model

from edgedec._support import kept
from edgedec._support.kept import STATED
from edgedec.errors import RuntimeUnavailable
from edgedec.runtimes._ort import packed
from edgedec.runtimes.onnx import preparing
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.preparing import prepare

SIZES = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 2048}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed, "LEAST_BYTES", 1)
    return tmp_path / "cache" / "packed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "a", "int4", own_rows=True, **SIZES)
    return tmp_path / "a"


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    """Other weights in files of the same lengths."""
    write_tiny_model(tmp_path / "b", "int4", seed=1, own_rows=True, **SIZES)
    return tmp_path / "b"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The packed folders that were opened."""
    found: list[Path] = []
    real = packed.open_packed

    def watched(folder: Path, threads: int) -> Any:
        found.append(folder)
        return real(folder, threads)

    monkeypatch.setattr(packed, "open_packed", watched)
    return found


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


def not_used(folder: Path, opened: list[Path], caplog: pytest.LogCaptureFixture) -> str:
    """Loaded without packed weights, with one line; returns it."""
    opened.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        OnnxModel.load(folder, threads=1).close()
    assert not opened
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "not used" in record.getMessage()
    return record.getMessage()


def test_the_bits_are_the_same_with_and_without(
    folder: Path, twin: Path, cache: Path, opened: list[Path]
) -> None:
    expected, other = logits(folder), logits(twin)
    assert not np.array_equal(expected, other)
    assert prepare(folder).what == "packed"
    assert prepare(twin).what == "packed"
    assert len(entries(cache)) == 2
    opened.clear()
    assert np.array_equal(logits(folder), expected)
    assert np.array_equal(logits(twin), other)
    assert len(set(opened)) == 2


def test_once_is_enough(folder: Path, cache: Path) -> None:
    done = prepare(folder)
    (entry,) = entries(cache)
    files = [file for file in entry.iterdir() if file.name != STATED]
    assert done.size_bytes >= sum(file.stat().st_size for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in entry.iterdir())
    again = prepare(folder)
    assert (again.what, again.size_bytes) == ("packed before", done.size_bytes)


def test_small_models_are_left_alone(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "LEAST_BYTES", 1 << 30)
    assert "not worth packing" in prepare(folder).what
    assert not cache.exists()


def test_a_bundle_changed_in_place_has_no_packed_weights(
    folder: Path, opened: list[Path], twin: Path
) -> None:
    prepare(folder)
    for file in twin.iterdir():
        shutil.copyfile(file, folder / file.name)
    opened.clear()
    assert np.array_equal(logits(folder), logits(twin))
    assert not opened


def test_anothers_weights_under_this_key_are_refused(
    folder: Path, twin: Path, cache: Path, opened: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    prepare(twin)
    (others,) = entries(cache)
    prepare(folder)
    (own,) = set(entries(cache)) - {others}
    expected = logits(twin)
    shutil.rmtree(own)
    shutil.copytree(others, own)
    assert "something else" in not_used(folder, opened, caplog)
    assert not own.exists()
    # The control: were the stated key believed, these would be the other model's logits.
    shutil.copytree(others, own)
    stated = json.loads((own / STATED).read_text())
    (own / STATED).write_text(json.dumps(stated | {"key": own.name}))
    assert np.array_equal(logits(folder), expected)


def cut(entry: Path) -> None:
    with (entry / packed.WEIGHTS).open("r+b") as file:
        file.truncate(file.seek(0, 2) - 1)


def unstate(entry: Path) -> None:
    (entry / STATED).write_text("{")


@pytest.mark.parametrize("damage", [cut, unstate])
def test_damaged_ones_are_not_used_and_made_again(
    folder: Path,
    cache: Path,
    opened: list[Path],
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = logits(folder)
    prepare(folder)
    (entry,) = entries(cache)
    damage(entry)
    not_used(folder, opened, caplog)
    assert not entry.exists()
    caplog.clear()
    assert np.array_equal(logits(folder), expected)
    assert not caplog.records
    assert prepare(folder).what == "packed"
    assert np.array_equal(logits(folder), expected)
    assert opened


def test_what_onnx_runtime_refuses_is_not_used(
    folder: Path,
    cache: Path,
    opened: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prepare(folder)
    (entry,) = entries(cache)
    (entry / packed.GRAPH).write_bytes(b"\x08\x08no")
    monkeypatch.setattr(kept, "_check_stated", lambda path, key: None)
    with caplog.at_level(logging.WARNING):
        OnnxModel.load(folder, threads=1).close()
    assert opened
    assert len(caplog.records) == 1
    assert not entry.exists()


@pytest.mark.parametrize("name", ["__version__", "get_build_info"])
def test_another_version_or_processor_has_none(
    folder: Path, opened: list[Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(folder)
    opened.clear()
    with monkeypatch.context() as patch:
        patch.setattr(packed.ort, name, "9.9" if name == "__version__" else lambda: "other")
        OnnxModel.load(folder, threads=1).close()
    with monkeypatch.context() as patch:
        patch.setattr(packed, "cpu_fields", lambda: {"flags": "fpu"})
        OnnxModel.load(folder, threads=1).close()
    assert not opened
    OnnxModel.load(folder, threads=1).close()
    assert opened


def refused(folder: Path, cache: Path, *words: str) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        prepare(folder)
    for word in words:
        assert word in str(caught.value)
    assert not cache.exists() or not entries(cache)
    OnnxModel.load(folder, threads=1).close()


def test_a_full_disk(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packed, "pack", full)
    refused(folder, cache, "No space left", "as before")


def test_a_disk_that_is_nearly_full(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(path: Path) -> Any:
        return type("Usage", (), {"free": 1000})

    monkeypatch.setattr(kept.shutil, "disk_usage", usage)
    refused(folder, cache, "half of", "free")


def test_a_home_that_cannot_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "file"))
    refused(folder, tmp_path / "nothing", "cannot be kept", "as before")


def test_other_bits_are_not_kept(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = preparing._logits
    turns = iter((0.0, 1e-6))

    def off(*args: Any) -> Any:
        return real(*args) + next(turns)

    monkeypatch.setattr(preparing, "_logits", off)
    refused(folder, cache, "would change its logits")


def test_other_providers_do_not_look(folder: Path, opened: list[Path]) -> None:
    from edgedec.bundle.onnx_file import read_model_file

    prepare(folder)
    opened.clear()
    file = folder / "model.onnx"
    stored = read_model_file(file)
    assert packed.open_kept(file, stored, 1, ["CUDAExecutionProvider"]) is None
    assert packed.open_kept(file, stored, 1, device="cuda:gpu0") is None
    assert not opened
    assert packed.open_kept(file, stored, 1, ["CPUExecutionProvider"]) is not None
