"""A model is found on a node by its hashes, or sent to it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import small_disk

from edgedec._support import kept as user_cache
from edgedec.bundle import Bundle
from edgedec.cluster import models
from edgedec.errors import BundleError, InputError


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle in a folder; the node's cache is another."""
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "CHUNK_BYTES", 100_000)
    return Path(shutil.copytree(Bundle.open("demo").path, tmp_path / "here"))


def as_is(data: bytes) -> bytes:
    return data


def sent(folder: Path) -> tuple[models.Description, dict[str, Any]]:
    """Describe a model and read it, then take it away."""
    model = models.describe(folder)
    parts = dict(models.chunks(model, as_is))
    shutil.rmtree(folder)
    return model, parts


def test_a_model_is_found_where_it_is(bundle: Path) -> None:
    model = models.describe(bundle)
    assert models.find(model) == str(bundle)
    assert models.find(models.describe("demo")) == "demo"
    weights = next(bundle.rglob("*.data"))
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    assert models.find(model) is None


def test_a_model_that_was_sent_is_whole_and_found_again(bundle: Path) -> None:
    model, parts = sent(bundle)
    assert max(map(len, parts.values())) > 1, "expected a file of several chunks"
    assert models.find(model) is None
    path = models.receive(model, parts, as_is)
    assert models.find(model) == path
    assert Bundle.open(path, verify=True).files.keys() | {"manifest.json"} == model["files"].keys()
    next(Path(path).rglob("*.data")).write_bytes(b"cut short")
    assert models.find(model) is None
    assert models.find({**model, "files": {"manifest.json": "0" * 64}}) is None


@pytest.mark.parametrize("kept", [True, False])
def test_a_draft_does_not_take_the_place_of_its_target(
    bundle: Path, tmp_path: Path, monkeypatch, kept: bool
) -> None:
    """Where both together are more than the cache keeps; the control names no other model."""
    draft = Path(shutil.copytree(bundle, tmp_path / "draft"))
    (draft / "manifest.json").write_bytes((draft / "manifest.json").read_bytes() + b"\n")
    target, parts = sent(bundle)
    monkeypatch.setattr(user_cache, "MAX_BYTES", target["bytes"] * 3 // 2)
    models.receive(target, parts, as_is)
    other, parts = sent(draft)
    models.receive(other, parts, as_is, [target, other] if kept else [])
    assert models.find(other) is not None
    assert (models.find(target) is not None) == kept


def test_a_node_without_the_pair_that_ships_is_sent_it(bundle: Path, monkeypatch) -> None:
    model = models.describe("demo")
    assert models.find(model) == "demo"
    parts = models.chunks(model, as_is)

    def missing(path: str) -> Bundle:
        raise BundleError("the demo pair is not installed")

    monkeypatch.setattr(models.Bundle, "open", missing)
    assert models.find(model) is None
    assert Path(models.receive(model, parts, as_is)).is_dir()


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "c:\\outside"])
def test_no_path_leads_out_of_the_folder(bundle: Path, tmp_path: Path, name: str) -> None:
    model, parts = sent(bundle)
    with pytest.raises(BundleError, match="not a path inside"):
        models.receive(
            {**model, "files": {**model["files"], name: "0" * 64}}, parts | {name: [b"x"]}, as_is
        )
    assert not list(tmp_path.rglob("outside"))
    assert not list((tmp_path / "cache" / "sent").iterdir())


def test_other_bytes_than_described_are_not_kept(bundle: Path, tmp_path: Path) -> None:
    model, parts = sent(bundle)
    parts["manifest.json"] = [b"{}"]
    with pytest.raises(BundleError, match="arrived with other bytes"):
        models.receive(model, parts, as_is)
    with pytest.raises(BundleError, match="other files were sent"):
        models.receive(model, {"manifest.json": [b"{}"]}, as_is)
    assert not list((tmp_path / "cache" / "sent").iterdir())


def test_a_node_whose_disk_is_full(bundle: Path, tmp_path: Path, monkeypatch) -> None:
    model, parts = sent(bundle)
    with small_disk.mounted(tmp_path / "disk") as disk:
        monkeypatch.setenv("EDGEDEC_CACHE", str(disk))
        with pytest.raises(InputError, match="no room for the model"):
            models.receive(model, parts, as_is)
        assert not list((disk / "sent").iterdir())


def test_a_model_in_gguf(tmp_path: Path, monkeypatch) -> None:
    tiny_gguf = pytest.importorskip("tiny_gguf", reason="gguf is not installed: extra export")

    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "folder" / "tiny.gguf"
    file.parent.mkdir()
    tiny_gguf.write_tiny_gguf(file)
    model = models.describe(file)
    assert models.find(model) == str(file)
    data = file.read_bytes()
    path = models.receive(model, models.chunks(model, as_is), as_is)
    file.unlink()
    assert models.find(model) == path
    assert Path(path).name == "tiny.gguf"
    assert Path(path).read_bytes() == data
