"""What may be read of a folder from elsewhere: regular files inside it, opened once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgedec._support import files, opened_before
from edgedec._support.files import open_inside, open_regular
from edgedec._support.kept import Record
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.bundle.onnx_file import read_model_file
from edgedec.errors import BundleError
from edgedec.loading import sources
from edgedec.text.tokenizer import Tokenizer

FIFOS = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
BESIDE = ("tokenizer_config.json", "chat_template.jinja")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The demo, without the draft and with nothing beside its tokenizer.json."""
    root = tmp_path / "bundle"
    shutil.copytree(Bundle.open("demo").path, root)
    manifest = json.loads((root / MANIFEST).read_text("utf-8"))
    del manifest["roles"]["draft"]
    for name in [*manifest["files"]]:
        if name.startswith("draft/") or name == "tokenizer/tokenizer_config.json":
            del manifest["files"][name]
            (root / name).unlink()
    (root / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    return root


def relist(root: Path, name: str) -> None:
    """List a file that was added or changed, as its owner would."""
    manifest = json.loads((root / MANIFEST).read_text("utf-8"))
    data = (root / name).read_bytes()
    fact = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    manifest["files"][name] = fact
    (root / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def target(root: Path) -> sources.Source:
    return sources.Models.find(root).sources["target"][0]


def one_line(call: Callable[[], object]) -> str:
    with pytest.raises(BundleError) as refused:
        call()
    return str(refused.value)


def test_a_regular_file_is_opened_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        with open_regular(tmp_path / name) as stream:
            assert stream.read() == b"content"


@pytest.mark.parametrize("by_folder", [True, False])
@pytest.mark.parametrize("kind", ["file", "link", "link inside", "folder link", "folder", "fifo"])
def test_inside_a_folder_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, by_folder: bool
) -> None:
    monkeypatch.setattr(files, "_BY_FOLDER", by_folder and files._BY_FOLDER)
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    for folder in (root, outside):
        (folder / "real").write_bytes(b"content")
    file = root / "sub" / "file"
    if kind == "file":
        file.write_bytes(b"content")
        with open_inside(root, ["sub", "file"]) as stream:
            assert stream.read() == b"content"
        return
    if kind == "link":
        file.symlink_to(outside / "real")
    elif kind == "link inside":
        file.symlink_to("../real")
    elif kind == "folder link":
        (root / "sub").rmdir()
        (root / "sub").symlink_to(outside)
        (outside / "file").write_bytes(b"content")
    elif kind == "folder":
        file.mkdir()
    elif not hasattr(os, "mkfifo") or not by_folder:
        pytest.skip("no FIFOs where paths are opened")
    else:
        os.mkfifo(file)
    with pytest.raises(OSError, match=r"link|regular|directory"):
        open_inside(root, ["sub", "file"])


@FIFOS
def test_a_fifo_is_refused_at_once_by_everything_that_reads(tmp_path: Path) -> None:
    fifo = tmp_path / "tokenizer.json"
    os.mkfifo(fifo)
    for read in (Tokenizer.load, read_model_file):
        assert "regular file" in one_line(lambda read=read: read(fifo))
    os.mkfifo(tmp_path / MANIFEST)
    assert "regular file" in one_line(lambda: Bundle.open(tmp_path))


@FIFOS
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("kind", ["fifo", "link", "file"])
def test_what_is_not_listed_is_not_read_but_named(bundle: Path, name: str, kind: str) -> None:
    file = bundle / "tokenizer" / name
    secret = bundle.parent / "secret"
    secret.write_text(json.dumps({"chat_template": "secret"}), "utf-8")
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to(secret)
    else:
        shutil.copy(secret, file)
    opened = Bundle.open(bundle, verify=True)
    assert opened.unlisted == (f"tokenizer/{name}",)
    assert target(bundle).read_tokenizer().chat_template is None


@FIFOS
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_is_listed_must_be_a_regular_file(bundle: Path, name: str, kind: str) -> None:
    file = bundle / "tokenizer" / name
    file.write_text("{}", "utf-8")
    relist(bundle, f"tokenizer/{name}")
    assert Bundle.open(bundle).unlisted == ()
    source = target(bundle)
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    else:
        (bundle / "elsewhere").write_text("{}", "utf-8")
        file.symlink_to("../elsewhere")
    assert "regular file" in one_line(source.read_tokenizer) or kind == "link"
    assert "link" in one_line(source.read_tokenizer) or kind == "fifo"
    one_line(lambda: Bundle.open(bundle))


def test_what_changed_after_the_bundle_was_opened_is_noticed(bundle: Path) -> None:
    source = target(bundle)
    file = bundle / "tokenizer" / "tokenizer.json"
    data = file.read_bytes()
    file.write_bytes(data.replace(b"1", b"2", 1))
    assert "was altered" in one_line(source.read_tokenizer)
    file.write_bytes(data)
    source.read_tokenizer()


def test_external_data_that_is_not_listed(bundle: Path) -> None:
    """The graph names a file of weights that stands beside it, but the manifest does not."""
    target(bundle).admit()
    manifest = json.loads((bundle / MANIFEST).read_text("utf-8"))
    manifest["roles"]["target"]["variants"]["onnx"]["files"].remove("target/model.onnx.data")
    (bundle / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    message = one_line(target(bundle).admit)
    assert "'model.onnx.data', which the manifest does not list" in message
    assert "export the bundle again" in message


def test_the_bundle_that_ships_lists_all_that_is_in_it() -> None:
    assert Bundle.open("demo", verify=True).unlisted == ()


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        ({"format": 1, "digests": {}, "opened": {"d": "1"}}, True),
        ({"format": 99, "digests": {}, "opened": {"d": "1"}}, False),
        ({"format": 1, "digests": 3, "opened": {"d": 1}}, False),
    ],
)
def test_a_record_of_checks_in_another_form_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: dict[str, object], known: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Record("checks", "gguf").write(raw)
    assert opened_before.OpenedBefore("gguf", "1").opened("d") == known


def test_a_file_written_to_while_it_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"old")
    real = opened_before._sha256

    def slowly(path: Path) -> str:
        found = real(path)
        path.write_bytes(b"newer")
        return found

    known = opened_before.OpenedBefore("gguf", "1")
    monkeypatch.setattr(opened_before, "_sha256", slowly)
    with pytest.raises(OSError, match="changed while it was read"):
        known.digest([file])
    monkeypatch.setattr(opened_before, "_sha256", real)
    assert known.digest([file]) == hashlib.sha256(b"newer").hexdigest()
