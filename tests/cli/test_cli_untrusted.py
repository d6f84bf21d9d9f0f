"""Bundles made to do harm, at the command line: one line, exit code 2, nothing waits."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import hostile_schemas
import kinds
import pytest
import tokenizer_attacks

from benchmarks.sections.untrusted import ATTACKS
from edgedec.bundle.manifest import MANIFEST

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def copied(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "bundle"))


def put(root: Path, name: str, content: str) -> None:
    """Put a file into a bundle and list it, as who wants to do harm would."""
    (root / name).write_text(content, "utf-8")
    manifest = json.loads((root / MANIFEST).read_text("utf-8"))
    digest = hashlib.sha256(content.encode()).hexdigest()
    manifest["files"][name] = {"sha256": digest, "bytes": len(content.encode())}
    (root / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def refused(start: Start, *arguments: object, stdin: bytes = b"") -> str:
    """What a command that is refused says; it gets a minute, for a busy machine."""
    process = start(*arguments)
    try:
        output, said = process.communicate(stdin, timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert output == b""
    assert said.startswith(b"edgedec: error: ")
    assert said.count(b"\n") == 1
    return said.decode()


@pytest.mark.parametrize("name", ["a panic", "doubling"])
def test_a_tokenizer(copied: Path, start: Start, name: str) -> None:
    put(copied, "tokenizer/tokenizer.json", tokenizer_attacks.ATTACKS[name])
    said = refused(start, "generate", "x" * 64, "--bundle", copied)
    assert "expected a Hugging Face tokenizer.json" in said


# One that needs memory; those that need time are in ``test_sandbox.py``.
@pytest.mark.parametrize("name", kinds.in_full(["format", "round"]))
def test_a_chat_template(copied: Path, start: Start, name: str) -> None:
    put(copied, "tokenizer/chat_template.jinja", ATTACKS[name])
    file = copied.parent / "messages.json"
    file.write_text('[{"role": "user", "content": "Hi"}]', "utf-8")
    said = refused(start, "generate", "--bundle", copied, "--messages", file)
    assert "the chat template was stopped: it " in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize("command", ["inspect", "generate"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_listed_file_that_is_none(copied: Path, start: Start, command: str, kind: str) -> None:
    file = copied / "tokenizer/tokenizer_config.json"
    if kind == "link":
        file.rename(copied.parent / "elsewhere")
        file.symlink_to(copied.parent / "elsewhere")
    else:
        file.unlink()
        os.mkfifo(file)
    rest = [copied] if command == "inspect" else ["x", "--bundle", copied]
    said = refused(start, command, *rest)
    assert ("behind a link" if kind == "link" else "not a regular file") in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_not_listed_is_named(copied: Path, run: Callable[..., object]) -> None:
    os.mkfifo(copied / "tokenizer/chat_template.jinja")
    (copied / "notes\x1b[31m.txt").symlink_to("/etc/passwd")
    result = run("inspect", copied)
    assert result.exit_code == 0  # type: ignore[attr-defined]
    shown = " ".join(result.stdout.split())  # type: ignore[attr-defined]
    assert "not listed notes?[31m.txt, tokenizer/chat_template.jinja: the manifest does" in shown
    found = json.loads(run("inspect", copied, "--json").stdout)  # type: ignore[attr-defined]
    assert found["unlisted"] == ["notes\x1b[31m.txt", "tokenizer/chat_template.jinja"]


@pytest.mark.parametrize(
    "name",
    [
        # A server refuses the endless one in the same words, and decodes meanwhile.
        pytest.param(name, marks=pytest.mark.full if name == "endless" else ())
        for name in hostile_schemas.REFUSED
    ],
)
def test_a_schema(
    bundle: Path, tmp_path: Path, run: Callable[..., object], one_line: Callable, name: str
) -> None:
    pytest.importorskip("llguidance", reason="llguidance not installed: install the extra grammar")
    schema, message = hostile_schemas.REFUSED[name]
    file = tmp_path / "schema.json"
    file.write_text(schema, "utf-8")
    # In this process: what a schema could crash has one of its own.
    said = one_line(run("generate", "x", "--bundle", bundle, "--json-schema", file))
    assert message in said
