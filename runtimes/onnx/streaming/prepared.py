"""Blocks of a graph with their weights packed for this processor, written once and kept.

ONNX Runtime packs weights when it loads them, into memory that it cannot release. Here every block
is loaded once and saves its packed weights next to its graph; loaded from there, they are mapped.
They fit one processor and one version of ONNX Runtime, so they are kept in the user's cache and
never in a bundle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from edgedec._support.fields import one_line
from edgedec._support.kept import Folder
from edgedec.bundle.onnx_file import read_model_file
from edgedec.bundle.protobuf import message
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.runtimes._ort.opening import SessionFailed
from edgedec.runtimes._ort.packed import pack
from edgedec.runtimes._ort.saved import content_digest
from edgedec.runtimes.onnx.streaming.cutting import CutGraph

KIND = "blocks"
_FORMAT = 3
# Packed and unpacked weights; packed ones include sums.
_GROWTH = 2.2
_KINDS = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}


@dataclass(frozen=True, slots=True)
class BlockFiles:
    """A block's graph and its weights."""

    graph: Path
    weights: Path


def prepared(file: Path) -> list[BlockFiles]:
    """Return the blocks of a graph; write them first if necessary.

    Raises:
        BundleError: the graph cannot be cut, or ONNX Runtime refuses it.
        RuntimeUnavailable: there is no room, or no folder, to keep them.

    """
    try:
        kept = Folder(KIND, _key(file))
        return _files(kept.usable() or _write(file, kept))
    except OSError as error:
        raise RuntimeUnavailable(
            f"{file}: its blocks cannot be kept in the cache ({error.strerror or error}): streaming"
            " needs twice the weights' size there; XDG_CACHE_HOME names another folder"
        ) from error


def _key(file: Path) -> str:
    """Hash everything that packed weights depend on."""
    content = content_digest(file, read_model_file(file), KIND, ort.__version__)
    flags = cpu_fields()
    facts = (
        _FORMAT, content, ort.__version__, ort.get_build_info(), cpu_name(),
        flags.get("flags") or flags.get("features") or "",
    )  # fmt: skip
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _files(where: Path) -> list[BlockFiles]:
    count = len([*where.glob("*.onnx")])
    return [_block(where, at) for at in range(count)]


def _block(where: Path, at: int) -> BlockFiles:
    return BlockFiles(where / f"{at}.onnx", where / f"{at}.data")


def _write(file: Path, kept: Folder) -> Path:
    graph = CutGraph(file.read_bytes(), str(file))
    types: dict[str, bytes] = {}
    expected = int(_GROWTH * read_model_file(file).weight_bytes)
    what = f"{file.parent.name} of {file.parent.parent}"
    # The model cannot be loaded without them, so only free disk space limits their size.
    with kept.writing(what, expected, required=True) as partial:
        for at, block in enumerate(graph.blocks):
            types |= _pack(graph.serialised(block, types), _block(partial, at), file)
    return kept.path


def _pack(model: bytes, files: BlockFiles, source: Path) -> dict[str, bytes]:
    """Write a block with packed weights; return the types of its outputs."""
    try:
        session = pack(model, files.graph, files.weights, source.parent)
    except SessionFailed as error:
        raise BundleError(f"{source}: it cannot be cut into blocks: {error}") from error
    made = session.get_outputs()
    unknown = [node.type for node in made if _kind(node.type) not in _KINDS]
    if unknown:
        raise BundleError(
            f"{source}: it cannot be cut into blocks: a value of {one_line(unknown[0])} would be"
            " handed on: leave --weight-memory out"
        )
    return {node.name: _type(node.type, node.shape) for node in made}


def _kind(kind: str) -> str:
    return kind.removeprefix("tensor(").removesuffix(")")


def _type(kind: str, shape: Sequence[int | str | None]) -> bytes:
    """Return a TypeProto; an empty shape stands for an unknown one."""
    element = (1, _KINDS[_kind(kind)])
    if not shape:
        return message((1, message(element)))
    sizes = [(1, size) if isinstance(size, int) else (2, size or "n") for size in shape]
    dims = message(*((1, message(size)) for size in sizes))
    return message((1, message(element, (2, dims))))
