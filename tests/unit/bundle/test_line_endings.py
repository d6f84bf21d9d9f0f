"""A bundle in a git repository that changes line endings when files are checked out."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from test_bundle import make, refused
from tiny_models import tiny_checkpoint

from edgedec.bundle.folder import Bundle
from edgedec.bundle.manifest import GIT_FILE, GIT_RULE, MANIFEST
from edgedec.errors import InputError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.atomic import check_free

TOKENIZER = "tokenizer/tokenizer.json"
WORDS = r"line endings were changed, as git does with core\.autocrlf; clone the bundle again"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = tiny_checkpoint(folder / "checkpoint")
    export_bundle(ExportOptions(checkpoint, folder / "bundle", parity=False))
    text = (folder / "bundle" / TOKENIZER).read_bytes()
    assert b"\n" in text
    assert b"\r" not in text
    return folder / "bundle"


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(exported, tmp_path / "bundle")


def checked_out(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commit a bundle and check it out as git for Windows does by default."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    clone = bundle.parent / "clone"

    def git(folder: Path, *words: object) -> None:
        settings = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
        command = ["git", "-C", str(folder), *settings, *map(str, words)]
        subprocess.run(command, check=True, capture_output=True)

    git(bundle, "init")
    git(bundle, "add", ".")
    git(bundle, "commit", "-m", "a bundle")
    git(bundle.parent, "clone", "-c", "core.autocrlf=true", bundle, clone)
    return clone


def test_a_clone_has_the_same_bytes(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = checked_out(bundle, monkeypatch)
    assert Bundle.open(clone, verify=True).files == Bundle.open(bundle).files


def test_git_changes_a_bundle_without_the_rule(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundle / GIT_FILE).unlink()
    refused(checked_out(bundle, monkeypatch), WORDS)


def test_a_copy_without_hidden_files_is_a_bundle(bundle: Path) -> None:
    (bundle / GIT_FILE).unlink()
    assert Bundle.open(bundle).unlisted == ()


def test_the_rule_is_part_of_the_bundle(bundle: Path) -> None:
    assert (bundle / GIT_FILE).read_bytes() == GIT_RULE
    assert Bundle.open(bundle).unlisted == ()
    check_free(bundle, overwrite=True)


def test_rules_of_the_user_are_not(bundle: Path) -> None:
    (bundle / GIT_FILE).write_bytes(GIT_RULE + b"*.onnx.data filter=lfs\n")
    assert Bundle.open(bundle).unlisted == (GIT_FILE,)
    with pytest.raises(InputError, match=r"also contains '\.gitattributes', not part"):
        check_free(bundle, overwrite=True)


@pytest.mark.parametrize(
    ("stated", "found"), [(b"{\n}\n", b"{\r\n}\r\n"), (b"{\r\n}\r\n", b"{\n}\n")]
)
def test_endings_changed_either_way_are_named(tmp_path: Path, stated: bytes, found: bytes) -> None:
    root = with_tokenizer(tmp_path, stated)
    Bundle.open(root)
    (root / TOKENIZER).write_bytes(found)
    refused(root, WORDS)


@pytest.mark.parametrize("found", [b"{\r\n]\r\n", b"{\n }\n ", b""])
def test_other_changes_are_not_called_so(tmp_path: Path, found: bytes) -> None:
    root = with_tokenizer(tmp_path, b"{\n}\n")
    (root / TOKENIZER).write_bytes(found)
    refused(root, "the manifest says 4: export or copy the bundle again$")


def with_tokenizer(folder: Path, text: bytes) -> Path:
    """Write a bundle whose tokenizer is this text."""
    root = make(folder)
    (root / TOKENIZER).write_bytes(text)
    manifest = json.loads((root / MANIFEST).read_text())
    manifest["files"][TOKENIZER] = {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root
