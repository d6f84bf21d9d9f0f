"""Opening bundles: what they tell, and what is refused in one line."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from edgedec.bundle import folder
from edgedec.bundle.folder import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError
from tools.vectors.manifest_changes import role

SMALL = 1 << 16  # as large files as the real bound makes take a tenth of a second each
FILES = {
    "target/model.onnx": b"graph",
    "target/model.onnx.data": bytes(SMALL + 7),
    "draft/model.onnx": b"small graph",
    "tokenizer/tokenizer.json": b"{}",
}


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.SMALL_FILE_BYTES > SMALL
    monkeypatch.setattr(folder, "SMALL_FILE_BYTES", SMALL)


def onnx(manifest):
    return manifest["roles"]["target"]["variants"]["onnx"]


def make(root, change=lambda manifest: None):
    facts = {}
    for name, data in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        facts[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    manifest = {
        "schema_version": 2,
        "roles": {
            "target": role("target", "model.onnx", "model.onnx.data"),
            "draft": role("draft", "model.onnx"),
        },
        "generation": {"temperature": 0.7},
        "files": facts,
    }
    change(manifest)
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root


def refused(root, words, **how):
    with pytest.raises(BundleError, match=words):
        Bundle.open(root, **how)


def test_what_a_bundle_tells(tmp_path):
    bundle = Bundle.open(make(tmp_path))
    assert bundle.target.variant("onnx").path == tmp_path / "target/model.onnx"
    assert bundle.target.dims == {"layers": 2, "vocab_size": 96}
    assert [role.role for role in bundle.roles] == ["target", "draft"]
    assert bundle.target.tokenizer == tmp_path / "tokenizer"
    assert bundle.generation == {"temperature": 0.7}
    assert bundle.size_bytes == sum(map(len, FILES.values()))


def test_a_target_alone(tmp_path):
    bundle = Bundle.open(make(tmp_path, lambda m: m["roles"].pop("draft")))
    assert bundle.draft is None
    assert len(bundle.roles) == 1


def test_a_format_counts_that_every_model_is_there_in(tmp_path):
    def another(role):
        def change(manifest):
            variants = manifest["roles"][role]["variants"]
            variants["gguf"] = variants["onnx"]

        return change

    def both(manifest):
        another("target")(manifest)
        another("draft")(manifest)

    assert Bundle.open(make(tmp_path)).formats == ("onnx",)
    assert Bundle.open(make(tmp_path, another("target"))).formats == ("onnx",)
    assert Bundle.open(make(tmp_path, another("draft"))).formats == ("onnx",)
    assert Bundle.open(make(tmp_path, both)).formats == ("onnx", "gguf")


def test_a_manifest_that_is_a_folder(tmp_path):
    (tmp_path / MANIFEST).mkdir()
    refused(tmp_path, "manifest.json cannot be read: .*directory")


def test_no_path():
    refused("a\0b", "not a folder|cannot be read")
    refused("a\0b/c", "not a folder|cannot be read")


@pytest.mark.parametrize("named", ["my-bundel", "my_bundle", "demo"])
def test_a_misspelt_path_gets_a_suggestion(named: str, tmp_path: Path) -> None:
    for name in ("my-bundle", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").touch()
    (tmp_path / "my-bundels").mkdir()  # no model: never suggested
    close = f"not a folder (did you mean {tmp_path / 'my-bundle'}?): give a bundle"
    found = close if named != "demo" else f"{tmp_path / 'demo'} is not a folder: give a bundle"
    refused(tmp_path / named, re.escape(found))


def test_the_pair_that_ships_is_suggested() -> None:
    refused("dmeo", re.escape("dmeo is not a folder (did you mean demo?)"))


def test_a_bundle_behind_a_link_is_a_bundle(tmp_path):
    make(tmp_path / "bundle")
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    assert Bundle.open(tmp_path / "link").target.source == "tiny"


def test_an_altered_large_file_is_noticed_when_asked(tmp_path):
    root = make(tmp_path)
    (root / "target/model.onnx.data").write_bytes(bytes(SMALL + 6) + b"x")
    Bundle.open(root)
    refused(root, "was altered", verify=True)


def test_a_manifest_that_is_not_utf8(tmp_path):
    (tmp_path / MANIFEST).write_bytes(b"\xff")
    refused(tmp_path, "not a JSON object")
