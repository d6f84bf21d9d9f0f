"""Vectors of manifests: sound ones, and hostile ones with words of the refusal.

Every one is tried on edgedec's own reader, in a folder made for it. The words are in its message,
are no path, and are meant to be in the message of every other reader.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError

Change = Callable[[dict[str, Any]], object]
FILES = {
    "target/model.onnx": "graph",
    "target/model.onnx.data": "weights",
    "draft/model.onnx": "small graph",
    "tokenizer/tokenizer.json": "{}",
}
# Names of files that are no path inside a folder on one system or another.
OUTSIDE = (
    "/etc/passwd", "../outside", "target/../../outside", "target/..", "target//model.onnx",
    "./target/model.onnx", "target/./model.onnx", "target/model.onnx/", "", ".", "..", "C:/windows",
    "target\\model.onnx", "a\nb", "a\0b", "a\x1bb", "\u202ea", "a:b",
    "x" * 201,
)  # fmt: skip
_INSIDE = "not a path inside the bundle"


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
    for name, change in _SOUND.items():
        yield _changed(name, change, None)
    for name, (change, words) in _WRONG.items():
        yield _changed(name, change, words)
    for name in OUTSIDE:
        yield _changed(f"file {name!r}", _with_file(name), _INSIDE)
    yield from _texts()
    yield from _altered()
    yield from _links()


def manifest() -> dict[str, Any]:
    """Return the manifest that others are made from."""
    facts = {
        name: {"sha256": hashlib.sha256(text.encode()).hexdigest(), "bytes": len(text)}
        for name, text in FILES.items()
    }
    return {
        "schema_version": 2,
        "created_by": "edgedec",
        "roles": {
            "target": _role("target", "model.onnx", "model.onnx.data"),
            "draft": _role("draft", "model.onnx"),
        },
        "generation": {"temperature": 0.7},
        "files": facts,
    }


def _role(name: str, *files: str) -> dict[str, Any]:
    return {
        "architecture": "llama",
        "source": "tiny",
        "licence": None,
        "dims": {"layers": 2, "vocab_size": 96},
        "tokenizer": {"file": "tokenizer/tokenizer.json", "content_sha256": "0" * 64},
        "variants": {
            "onnx": {
                "file": f"{name}/{files[0]}",
                "files": [f"{name}/{file}" for file in files],
                "weights": "int4",
                "kv": "fp32",
            }
        },
    }


def _target(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["roles"]["target"]
    return found


def _onnx(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _target(manifest)["variants"]["onnx"]
    return found


def _fact(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["files"]["target/model.onnx"]
    return found


def _with_file(name: str) -> Change:
    return lambda m: m["files"].update({name: {"sha256": "0" * 64, "bytes": 1}})


_SOUND: dict[str, Change] = {
    "sound": lambda m: None,
    "target alone": lambda m: m["roles"].pop("draft"),
    "draft null": lambda m: m["roles"].update(draft=None),
    "no generation": lambda m: m.pop("generation"),
    "unknown fields": lambda m: (m.update(more=[1, {"a": None}]), _target(m).update(more=True)),
    "licence stated": lambda m: _target(m).update(licence="Apache-2.0"),
    "no sizes": lambda m: _target(m).update(dims={}),
    "largest size": lambda m: _target(m)["dims"].update(parameters=(1 << 62) - 1),
    "names in other scripts": lambda m: _target(m).update(source="模型"),
}
_WRONG: dict[str, tuple[Change, str]] = {
    "newer schema": (lambda m: m.update(schema_version=3), "has schema 3"),
    "newer schema, otherwise unknown": (
        lambda m: (m.clear(), m.update(schema_version=4, roles=[])), "has schema 4"),
    "older schema": (lambda m: m.update(schema_version=1), "has schema 1"),
    "schema a text": (lambda m: m.update(schema_version="2"), "expected a size"),
    "schema true": (lambda m: m.update(schema_version=True), "expected a size"),
    "schema a fraction": (lambda m: m.update(schema_version=2.0), "expected a size"),
    "schema negative": (lambda m: m.update(schema_version=-2), "expected a size"),
    "no schema": (lambda m: m.pop("schema_version"), "schema_version is missing"),
    "no files": (lambda m: m.pop("files"), "files is missing"),
    "files a list": (lambda m: m.update(files=[]), "expected an object"),
    "a file's facts a text": (
        lambda m: m["files"].update({"target/model.onnx": "x"}), "expected an object"),
    "no roles": (lambda m: m.pop("roles"), "roles is missing"),
    "roles null": (lambda m: m.update(roles=None), "expected an object"),
    "no target": (lambda m: m["roles"].pop("target"), "target is missing"),
    "draft a text": (lambda m: m["roles"].update(draft="small"), "expected an object"),
    "generation a list": (lambda m: m.update(generation=[]), "expected an object"),
    "architecture empty": (lambda m: _target(m).update(architecture=""), "expected a text"),
    "architecture a number": (lambda m: _target(m).update(architecture=4), "expected a text"),
    "no source": (lambda m: _target(m).pop("source"), "source is missing"),
    "licence a number": (lambda m: _target(m).update(licence=2), "expected a text"),
    "sizes missing": (lambda m: _target(m).pop("dims"), "dims is missing"),
    "size negative": (lambda m: _target(m)["dims"].update(layers=-1), "expected a size"),
    "size a fraction": (lambda m: _target(m)["dims"].update(layers=1.5), "expected a size"),
    "size null": (lambda m: _target(m)["dims"].update(layers=None), "expected a size"),
    "size too large": (lambda m: _target(m)["dims"].update(layers=1 << 62), "expected a size"),
    "size of many digits": (
        lambda m: _target(m)["dims"].update(layers=10**80), "expected a size"),
    "no tokenizer": (lambda m: _target(m).pop("tokenizer"), "tokenizer is missing"),
    "tokenizer not listed": (
        lambda m: _target(m)["tokenizer"].update(file="elsewhere.json"), "not among the files"),
    "tokenizer without hash": (
        lambda m: _target(m)["tokenizer"].pop("content_sha256"), "content_sha256 is missing"),
    "no variants": (lambda m: _target(m).update(variants={}), "expected one or more"),
    "variant a list": (
        lambda m: _target(m)["variants"].update(onnx=["target/model.onnx"]), "expected an object"),
    "main file not its own": (
        lambda m: _onnx(m).update(file="draft/model.onnx"), "one of its own files"),
    "no main file": (lambda m: _onnx(m).pop("file"), "file is missing"),
    "variant without files": (lambda m: _onnx(m).update(files=[]), "one of its own files"),
    "variant's files not listed": (lambda m: _onnx(m).update(files=["x"]), "not among the files"),
    "variant's files a text": (
        lambda m: _onnx(m).update(files="target/model.onnx"), "expected a list of texts"),
    "variant's files numbers": (lambda m: _onnx(m).update(files=[1]), "expected a list of texts"),
    "weights a number": (lambda m: _onnx(m).update(weights=4), "expected a text"),
    "no kv": (lambda m: _onnx(m).pop("kv"), "kv is missing"),
    "sha256 short": (lambda m: _fact(m).update(sha256="0" * 63), "64 hexadecimal digits"),
    "sha256 no digits": (lambda m: _fact(m).update(sha256="z" * 64), "64 hexadecimal digits"),
    "sha256 capitals": (lambda m: _fact(m).update(sha256="A" * 64), "64 hexadecimal digits"),
    "sha256 missing": (lambda m: _fact(m).pop("sha256"), "sha256 is missing"),
    "bytes negative": (lambda m: _fact(m).update(bytes=-1), "expected a size"),
    "bytes a text": (lambda m: _fact(m).update(bytes="5"), "expected a size"),
    "bytes missing": (lambda m: _fact(m).pop("bytes"), "bytes is missing"),
}  # fmt: skip


def _changed(name: str, change: Change, refused: str | None) -> Attempt:
    changed = copy.deepcopy(manifest())
    change(changed)
    return Attempt(name, json.dumps(changed), refused)


def _texts() -> Iterator[Attempt]:
    """Yield texts that are no manifest at all."""
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
