"""The one library of the page is as its authors published it, and stands next to its licences."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import edgedec.serve

STATIC = Path(edgedec.serve.__file__).parent / "static"
# By name: version, and SHA-256 of the file in that version's package on npm.
VENDORED = {
    "markdown-it.esm.min.mjs": (
        "markdown-it 15.0.3", "d5432491790141da046b1197353705db03264f40b5727f3b4b591f5aba193e30"
    ),
}  # fmt: skip
# What the file contains, besides markdown-it.
INSIDE = ("entities", "linkify-it", "mdurl", "punycode.js", "uc.micro")


def changed(content: bytes, version: str, digest: str) -> list[str]:
    """What is wrong with a vendored file."""
    wrong = []
    if not re.match(rf"/\*! {re.escape(version)} ", content.decode("utf-8")):
        wrong.append("version")
    if hashlib.sha256(content).hexdigest() != digest:
        wrong.append("hash")
    return wrong


def test_it_is_as_published() -> None:
    found = {file.name for file in (STATIC / "vendor").iterdir()}
    assert found == {*VENDORED, "LICENSE.txt"}
    for name, (version, digest) in VENDORED.items():
        content = (STATIC / "vendor" / name).read_bytes()
        assert changed(content, version, digest) == []
        # The control: one byte more, and another version.
        assert changed(content + b"\n", version, digest) == ["hash"]
        other = content.replace(b"15.0.3", b"15.0.2", 1)
        assert changed(other, version, digest) == ["version", "hash"]


def test_licences_stand_next_to_it() -> None:
    text = (STATIC / "vendor" / "LICENSE.txt").read_text("utf-8")
    for version, _ in VENDORED.values():
        assert f"\n{version} (MIT)\n" in text
    for name in INSIDE:
        assert re.search(rf"^{re.escape(name)} [\d.]+ \((MIT|BSD-2-Clause)\)$", text, re.MULTILINE)
    assert text.count("Copyright") >= 1 + len(INSIDE)


def test_own_files_are_small() -> None:
    """The page's own code is for reading: no build step, no framework."""
    for file in STATIC.glob("*.*"):
        assert file.read_text("utf-8").count("\n") < 300, file.name
