"""Reads the facts that a runtime checks of an ONNX file, without the onnx package.

A walk over the protobuf wire format (field numbers from onnx.proto3) finds the metadata, the
bytes of the weights and the files that hold them. Nothing is copied and no tensor is read.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec.bundle.protobuf import Damaged, TooMany, marks
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
_OP_TYPE = 4
# Operators that may compute for as long as a file says; ONNX Runtime builds the last from Loop.
_LOOPS = {b"Loop", b"Scan", b"SequenceMap"}
_MAX_DEPTH = 16
# Largest size of metadata and of a path to weights, which are copied, unlike weights.
_MAX_ENTRY_BYTES = 1 << 20
# A decoder layer has about 400 fields, a mixture's more; this many take a second or two to read.
_MAX_FIELDS = 1 << 19
# Opening a model asks several times for what its file says: the latest graphs are walked once. A
# file that is larger holds weights as well, and hashing those takes longer than the walk.
_REMEMBERED_BYTES, _REMEMBERED = 1 << 20, 8
_walked: dict[bytes, ModelFile] = {}


class _Loops(Exception):
    """A node may compute for ever."""


@dataclass(slots=True)
class ModelFile:
    """Facts about an ONNX file; readers share them, so they must not be changed.

    Attributes:
        stored: ranges of bytes that hold weights, ``(file, offset, length)``; two tensors
            may share one.
        inline_bytes: bytes of the weights inside the file itself.
        looked_up: bytes of tables of which a token reads one row, and no product any.

    """

    metadata: dict[str, str] = field(default_factory=dict)
    stored: set[tuple[str, int, int]] = field(default_factory=set)
    inline_bytes: int = 0
    looked_up: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that a pass reads, as stored."""
        stored = self.inline_bytes + sum(length for _, _, length in self.stored)
        return stored - self.looked_up


def read_model_file(path: Path) -> ModelFile:
    """Walk over the file, and check that its external data exists in the same folder.

    Raises:
        BundleError: missing, damaged, or pointing out of its folder.

    """
    found = read_graph(path)
    ends: dict[str, int] = {}
    for location, offset, length in found.stored:
        ends[location] = max(ends.get(location, 0), offset + length)
    for location, end in ends.items():
        _check_external(path.parent, location, end)
    return found


def mapped(path: Path) -> mmap.mmap:
    """Map a file; BundleError if it is missing or empty."""
    try:
        with open_regular(path) as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        reason = getattr(error, "strerror", None) or "the file is empty"
        raise BundleError(f"{path}: cannot be read: {reason}") from error


def read_graph(path: Path) -> ModelFile:
    """Walk over the file alone, which may name any other; BundleError if it is damaged."""
    content = mapped(path)
    try:
        return _facts(content)
    except _Loops as error:
        raise BundleError(
            f"{path}: its graph has a loop ({error}), which no export has: refused"
        ) from None
    except TooMany:
        raise BundleError(
            f"{path}: its graph has more than {_MAX_FIELDS} fields, expected some"
            " thousands: refused"
        ) from None
    except (Damaged, ValueError):
        message = f"{path}: not an ONNX model, or damaged: export it again"
        raise BundleError(message) from None  # the cause would keep the file mapped


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


def _facts(content: mmap.mmap) -> ModelFile:
    """Walk over a file's bytes, unless the same bytes were walked over lately."""
    small = len(content) <= _REMEMBERED_BYTES
    digest = hashlib.sha256(content).digest() if small else b""
    found = _walked.get(digest)
    if found is None:
        found = ModelFile()
        _Walk(found).message(memoryview(content), "model", 0)
        if small:
            if len(_walked) >= _REMEMBERED:
                _walked.clear()
            _walked[digest] = found
    return found


class _Walk:
    """Walks over a file once, and stops after a number of fields."""

    def __init__(self, found: ModelFile) -> None:
        self._found = found
        self._left = _MAX_FIELDS

    def message(self, view: memoryview, kind: str, depth: int) -> None:
        """Walk over a message and what it contains."""
        if depth > _MAX_DEPTH:
            raise Damaged
        children = _CHILDREN[kind]
        for number, _, start, end in self._fields(view):
            child = children.get(number)
            if child is None:
                if number == _OP_TYPE and kind == "node" and start is not None:
                    self._operator(bytes(view[start:end]))
                continue
            if start is None:
                raise Damaged
            value = view[start:end]
            if child == "tensor":
                self._tensor(value)
            elif child == "property":
                key, text = self._entry(value)
                self._found.metadata[key] = text
            else:
                self.message(value, child, depth + 1)

    @staticmethod
    def _operator(name: bytes) -> None:
        if name in _LOOPS:
            raise _Loops(name.decode())

    def _tensor(self, view: memoryview) -> None:
        external: dict[str, str] = {}
        for number, _, start, end in self._fields(view):
            if start is None:
                continue
            if number in _TENSOR_DATA:
                self._found.inline_bytes += end - start
            elif number == _EXTERNAL_DATA:
                key, text = self._entry(view[start:end])
                external[key] = text
        if external:
            offset, length = int(external.get("offset", "0")), int(external.get("length", "-1"))
            if offset < 0 or length < 0 or "location" not in external:
                raise Damaged
            self._found.stored.add((external["location"], offset, length))

    def _entry(self, view: memoryview) -> tuple[str, str]:
        """Parse a StringStringEntryProto."""
        if len(view) > _MAX_ENTRY_BYTES:
            raise Damaged
        parts = {}
        for number, _, start, end in self._fields(view):
            if start is not None:
                parts[number] = bytes(view[start:end]).decode()
        return parts.get(1, ""), parts.get(2, "")

    def _fields(self, view: memoryview) -> list[tuple[int, int, int | None, int]]:
        found = marks(view, self._left)
        self._left -= len(found)
        return found


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
