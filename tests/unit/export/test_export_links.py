"""A checkpoint's links: those of the hub's cache are followed, those to elsewhere refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_models import leftovers, tiny_checkpoint

from edgedec.errors import CheckpointError
from edgedec.export import ExportOptions, export_bundle, links
from edgedec.export.checkpoint import Checkpoint

READ = ("tokenizer_config.json", "chat_template.jinja", "generation_config.json", "README.md")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "private" / "secret.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"secret": "of this user"}), "utf-8")
    return file


def linked(folder: Path, name: str, to: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(to)


@pytest.mark.parametrize("name", READ)
def test_a_link_out_of_the_checkpoint_is_refused_by_name(
    tmp_path: Path, secret: Path, name: str
) -> None:
    target = tiny_checkpoint(tmp_path / "model")
    linked(target, name, secret)
    out = tmp_path / "made" / "bundle"
    with pytest.raises(CheckpointError, match=f"{name} is a link that leads out"):
        export_bundle(ExportOptions(target, out, weights="int8", parity=False))
    assert not out.exists()
    assert not leftovers(out)


def test_a_snapshot_of_the_hubs_cache_is_exported(tmp_path: Path) -> None:
    cache = tmp_path / "models--a--b"
    snapshot = tiny_checkpoint(cache / "snapshots" / "0123abc")
    blobs = cache / "blobs"
    blobs.mkdir()
    for file in list(snapshot.iterdir()):
        shutil.move(file, blobs / f"hash-{file.name}")
        file.symlink_to(Path("..", "..", "blobs", f"hash-{file.name}"))
    link = tmp_path / "model"
    link.symlink_to(snapshot)
    for folder in (snapshot, link):
        out = tmp_path / "made" / folder.name
        export_bundle(ExportOptions(folder, out, weights="int8", parity=False))
        copied = out / "tokenizer" / "tokenizer.json"
        assert not copied.is_symlink()
        assert copied.read_bytes() == (snapshot / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    "to", ["out", "blobs are a link", "not a snapshot", "not the hub's", "loop"]
)
def test_what_only_looks_like_the_hubs_cache_is_refused(
    tmp_path: Path, secret: Path, to: str
) -> None:
    cache = tmp_path / "models--a--b"
    cache = tmp_path / "mine" if to == "not the hub's" else cache
    above = "other" if to == "not a snapshot" else "snapshots"
    snapshot = tiny_checkpoint(cache / above / "0123abc")
    blobs = cache / "blobs"
    if to == "blobs are a link":
        blobs.symlink_to(secret.parent)
    else:
        blobs.mkdir()
        shutil.copy(secret, blobs / secret.name)
    paths = {"out": secret, "loop": Path("README.md")}
    linked(snapshot, "README.md", paths.get(to, Path("..", "..", "blobs", secret.name)))
    with pytest.raises(CheckpointError, match=r"README\.md is a link that leads out"):
        Checkpoint.open(snapshot)


def test_a_link_inside_the_checkpoint_is_followed(tmp_path: Path) -> None:
    target = tiny_checkpoint(tmp_path / "model")
    (target / "template").write_text("{{ messages }}", "utf-8")
    linked(target, "chat_template.jinja", Path("template"))
    with links.open_own(target, "chat_template.jinja") as stream:
        assert stream.read() == b"{{ messages }}"
    assert Checkpoint.open(target).name == "model"


def test_a_link_that_appears_after_the_check_is_refused(tmp_path: Path, secret: Path) -> None:
    target = tiny_checkpoint(tmp_path / "model")
    links.check(target)
    linked(target, "chat_template.jinja", secret)
    with pytest.raises(CheckpointError, match="leads out"):
        links.open_own(target, "chat_template.jinja")
