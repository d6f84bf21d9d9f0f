"""Reads the facts that a runtime checks of an ONNX file, without the onnx package.

A walk over the protobuf wire format (field numbers from onnx.proto3) finds the metadata, the
bytes of the weights and the files that hold them. Nothing is copied and no tensor is read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec.errors import BundleError

# Fields that lead from a message to a tensor; node attributes contain tensors, too.
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 14: "property", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_TENSOR_DATA = {4, 5, 6, 7, 9, 10, 11}
_EXTERNAL_DATA = 13
_MAX_DEPTH = 16
# Largest size of metadata and of a path to weights, which are copied, unlike weights.
_MAX_ENTRY_BYTES = 1 << 20


@dataclass(slots=True)
class ModelFile:
    """Facts about an ONNX file.

    Attributes:
        metadata: its metadata_props.
        stored: ranges of bytes that hold weights, ``(file, offset, length)``; two tensors
            may share one.
        inline_bytes: bytes of the weights inside the file itself.

    """

    metadata: dict[str, str] = field(default_factory=dict)
    stored: set[tuple[str, int, int]] = field(default_factory=set)
    inline_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights as stored."""
        return self.inline_bytes + sum(length for _, _, length in self.stored)


def read_model_file(path: Path) -> ModelFile:
    """Walk over the file, and check that its external data exists in the same folder.

    Raises:
        BundleError: missing, damaged, or pointing out of its folder.

    """
    try:
        with open_regular(path) as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        reason = getattr(error, "strerror", None) or "the file is empty"
        raise BundleError(f"{path}: cannot be read: {reason}") from error
    found = ModelFile()
    try:
        _walk(memoryview(content), "model", found, 0)
    except (_Damaged, ValueError):
        message = f"{path}: not an ONNX model, or damaged: export it again"
        raise BundleError(message) from None  # the cause would keep the file mapped
    for location, offset, length in found.stored:
        _check_external(path.parent, location, offset + length)
    return found


def check_listed(path: Path, files: Iterable[Path]) -> None:
    """Check that a bundle's model file refers to no unlisted file.

    Args:
        path: the model's main file.
        files: all the files that are listed for the model.

    Raises:
        BundleError: the file is damaged, or its external data is in another file.

    """
    listed = {file.resolve() for file in files}
    for location in sorted({location for location, _, _ in read_model_file(path).stored}):
        if (path.parent / location).resolve() not in listed:
            raise BundleError(
                f"{path}: its weights are in {one_line(location)!r}, which the manifest does not"
                " list among the model's files: export the bundle again"
            )


class _Damaged(Exception):
    """The bytes are not a protobuf message."""


def _walk(view: memoryview, kind: str, found: ModelFile, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _Damaged
    children = _CHILDREN[kind]
    for number, value in _fields(view):
        child = children.get(number)
        if child is None:
            continue
        if not isinstance(value, memoryview):
            raise _Damaged
        if child == "tensor":
            _tensor(value, found)
        elif child == "property":
            key, text = _entry(value)
            found.metadata[key] = text
        else:
            _walk(value, child, found, depth + 1)


def _tensor(view: memoryview, found: ModelFile) -> None:
    external: dict[str, str] = {}
    for number, value in _fields(view):
        if not isinstance(value, memoryview):
            continue
        if number in _TENSOR_DATA:
            found.inline_bytes += len(value)
        elif number == _EXTERNAL_DATA:
            key, text = _entry(value)
            external[key] = text
    if external:
        offset, length = int(external.get("offset", "0")), int(external.get("length", "-1"))
        if offset < 0 or length < 0 or "location" not in external:
            raise _Damaged
        found.stored.add((external["location"], offset, length))


def _entry(view: memoryview) -> tuple[str, str]:
    """Parse a StringStringEntryProto."""
    if len(view) > _MAX_ENTRY_BYTES:
        raise _Damaged
    parts = {n: bytes(v).decode() for n, v in _fields(view) if isinstance(v, memoryview)}
    return parts.get(1, ""), parts.get(2, "")


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """Yield the fields of a message: their number, and their bytes if they have a length."""
    at, size = 0, len(view)
    while at < size:
        tag, at = _varint(view, at)
        # ONNX Runtime keeps the lower 32 bits, so a number that is unknown here could be a field
        # there.
        if not 8 <= tag < 1 << 32:
            raise _Damaged
        wire = tag & 7
        if wire == 2:
            length, at = _varint(view, at)
            if at + length > size:
                raise _Damaged
            yield tag >> 3, view[at : at + length]
            at += length
        elif wire == 0:
            _, at = _varint(view, at)
            yield tag >> 3, None
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            if at > size:
                raise _Damaged
            yield tag >> 3, None
        else:
            raise _Damaged


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in view[at : at + 10]:
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
        shift += 7
    raise _Damaged


def _check_external(folder: Path, location: str, end: int) -> None:
    shown = one_line(location)
    outside = BundleError(f"the model's weights lead out of its folder: {shown!r}: refused")
    if PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive or "\0" in location:
        raise outside
    where = folder / shown
    try:
        file = (folder / location).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise outside
        size = file.stat().st_size if file.is_file() else None
    except (OSError, RuntimeError):  # a name that is too long, a loop of links
        size = None
    if size is None:
        raise BundleError(f"{where}: the model's weights are missing: export it again")
    if size < end:
        raise BundleError(f"{where}: {size} bytes, expected {end}: cut short, export it again")
