"""Vectors of manifests: sound ones, and hostile ones with words of the refusal.

Every one is tried on edgedec's own reader, in a folder made for it. The words are in its message,
are no path, and are meant to be in the message of every other reader.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError
from tools.vectors.manifest_changes import (
    FILES,
    INSIDE,
    OUTSIDE,
    SOUND,
    WRONG,
    Change,
    manifest,
    with_file,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A folder to open.

    Attributes:
        name: of the case.
        manifest: its text; ``times`` as often, one after the other.
        files: contents by path.
        links: what links lead to, by path.
        refused: words of the refusal, None if it opens.

    """

    name: str
    manifest: str
    refused: str | None
    files: Mapping[str, str] = field(default_factory=lambda: dict(FILES))
    links: Mapping[str, str] = field(default_factory=dict)
    times: int = 1

    def record(self) -> dict[str, Any]:
        """Return the case as it is written."""
        found: dict[str, Any] = {"name": self.name, "manifest": self.manifest}
        if self.times > 1:
            found["times"] = self.times
        found["files"] = dict(self.files)
        if self.links:
            found["links"] = dict(self.links)
        return {**found, "refused": self.refused}


def make() -> list[dict[str, Any]]:
    """Return ``manifests.json``; AssertionError if edgedec's reader says otherwise."""
    records = [attempt.record() for attempt in attempts()]
    for record in records:
        check(record)
    return records


def check(record: Mapping[str, Any]) -> None:
    """Open the folder of a case; AssertionError unless it is as the case says."""
    message = outcome(record)
    words = record["refused"]
    if words is None:
        agrees = message is None
    else:
        agrees = message is not None and words in message and "\n" not in message
    if not agrees:
        raise AssertionError(f"{record['name']}: expected {words!r}, found {message!r}")


def outcome(record: Mapping[str, Any]) -> str | None:
    """Return the message by which edgedec's reader refuses a case; None if it opens."""
    with tempfile.TemporaryDirectory() as parent:
        root = Path(parent) / "bundle"
        root.mkdir()
        (root.parent / "outside").write_text(FILES["target/model.onnx"], "utf-8")
        for name, content in record["files"].items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, "utf-8", newline="")
        for name, to in record.get("links", {}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(to)
        text = record["manifest"] * record.get("times", 1)
        (root / MANIFEST).write_text(text, "utf-8", newline="")
        try:
            Bundle.open(root, verify=True)
        except BundleError as error:
            return str(error)
    return None


def attempts() -> Iterator[Attempt]:
    """Yield all cases."""
    for name, change in SOUND.items():
        yield _changed(name, change, None)
    for name, (change, words) in WRONG.items():
        yield _changed(name, change, words)
    for name in OUTSIDE:
        yield _changed(f"file {name!r}", with_file(name), INSIDE)
    yield from _texts()
    yield from _altered()
    yield from _links()


def _changed(name: str, change: Change, refused: str | None) -> Attempt:
    changed = copy.deepcopy(manifest())
    change(changed)
    return Attempt(name, json.dumps(changed), refused)


def _texts() -> Iterator[Attempt]:
    """Yield texts that are not manifests."""
    sound = json.dumps(manifest())
    for name, text in {
        "empty": "", "a list": "[]", "cut short": sound[: len(sound) // 2], "a text": '"text"',
        "a number": "7", "more behind": sound + "{}", "single quotes": sound.replace('"', "'"),
    }.items():  # fmt: skip
        yield Attempt(name, text, "not a JSON object")
    yield Attempt("white space around", f"\n\t {sound} \r\n", None)
    yield Attempt("nested without end", "[", "not a JSON object", times=100_000)
    yield Attempt("objects without end", '{"a":', "not a JSON object", times=100_000)
    yield Attempt("a megabyte", " ", "larger than 1 MiB", times=(1 << 20) + 1)


def _altered() -> Iterator[Attempt]:
    """Yield folders whose files are not those of the manifest."""
    sound = json.dumps(manifest())

    def files(name: str, content: str | None) -> dict[str, str]:
        return {n: c for n, c in {**FILES, name: content}.items() if c is not None}

    for name, content, words in (
        ("target/model.onnx", "grapH", "was altered"),
        ("draft/model.onnx", "small grapf", "was altered"),
        ("target/model.onnx.data", "weight", "has 6 bytes, the manifest says 7"),
        ("target/model.onnx.data", "", "has 0 bytes, the manifest says 7"),
        ("target/model.onnx.data", None, "is missing"),
        ("tokenizer/tokenizer.json", None, "is missing"),
    ):
        yield Attempt(f"{name} {words}", sound, words, files(name, content))
    yield Attempt("a file more", sound, None, files("target/other", "x"))
    folder = {
        **{n: c for n, c in FILES.items() if n != "draft/model.onnx"},
        "draft/model.onnx/x": "",
    }
    yield Attempt("a folder in a file's place", sound, "cannot be read", folder)


def _links() -> Iterator[Attempt]:
    """Yield folders with links, which may lead out of them."""
    sound, words = json.dumps(manifest()), "is behind a link"

    def without(start: str) -> dict[str, str]:
        return {name: content for name, content in FILES.items() if not name.startswith(start)}

    for name, to in (("outside", "../../outside"), ("inside", "model.onnx.copy")):
        files = {**without("target/model.onnx"), "target/model.onnx.data": "weights",
                 "target/model.onnx.copy": "graph"}  # fmt: skip
        yield Attempt(f"a link to {name}", sound, words, files, {"target/model.onnx": to})
    files = {**without("draft"), "other/model.onnx": "small graph"}
    yield Attempt("a folder that is a link", sound, words, files, {"draft": "other"})
