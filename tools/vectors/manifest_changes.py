"""Changes of a sound manifest: those that leave it sound, and those that readers refuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], object]
FILES = {
    "target/model.onnx": "graph",
    "target/model.onnx.data": "weights",
    "draft/model.onnx": "small graph",
    "tokenizer/tokenizer.json": "{}",
}
# File names that are not a path inside the folder on some system.
OUTSIDE = (
    "/etc/passwd", "../outside", "target/../../outside", "target/..", "target//model.onnx",
    "./target/model.onnx", "target/./model.onnx", "target/model.onnx/", "", ".", "..", "C:/windows",
    "target\\model.onnx", "a\nb", "a\0b", "a\x1bb", "\u202ea", "a:b",
    "x" * 201,
)  # fmt: skip
INSIDE = "not a path inside the bundle"


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
            "target": role("target", "model.onnx", "model.onnx.data"),
            "draft": role("draft", "model.onnx"),
        },
        "generation": {"temperature": 0.7},
        "files": facts,
    }


def role(name: str, *files: str) -> dict[str, Any]:
    """Return a role of a manifest, with the first of its files as its graph."""
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


def with_file(name: str) -> Change:
    """Return a change that lists a file of this name."""
    return lambda m: m["files"].update({name: {"sha256": "0" * 64, "bytes": 1}})


SOUND: dict[str, Change] = {
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
WRONG: dict[str, tuple[Change, str]] = {
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
