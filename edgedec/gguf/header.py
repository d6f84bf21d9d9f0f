"""The header of a GGUF file, read without trusting it.

A GGUF file starts with ``GGUF``, a version, two counts, that many metadata entries and tensor
infos, and then the tensors' bytes, each aligned (ggml's ``docs/gguf.md``). llama.cpp, which
computes with it, ends the process on some malformed files; here any fault is a one-line
BundleError. Neither llama.cpp nor the ``gguf`` package is needed.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec._support.scaled_context import scaled_context
from edgedec.errors import BundleError
from edgedec.gguf.types import ARRAY, BOOL, FILE_TYPES, NUMBERS, STRING, TENSOR_TYPES

CHUNK = 1 << 20
MAX_HEADER_BYTES = 256 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class ByteSource:
    """The bytes of a file, read once from the beginning.

    Args:
        file: opened for reading, at its beginning.
        size: bytes the file has.
        where: its name in messages.

    """

    def __init__(self, file: BinaryIO, size: int, where: Path) -> None:
        self._file = file
        self._size = size
        self._where = where
        self._buffer = b""
        self._at = 0
        self._before = 0  # bytes of the file before the buffer

    @property
    def position(self) -> int:
        """Number of bytes read so far."""
        return self._before + self._at

    @property
    def left(self) -> int:
        """Number of bytes left in the file."""
        return self._size - self.position

    def wrong(self, message: str) -> BundleError:
        """Return an error that names the file."""
        return BundleError(f"{one_line(str(self._where))}: {message}")

    def check(self, count: int, what: str) -> None:
        """Refuse a length of ``count`` bytes beyond the end of the file."""
        if count > self.left:
            raise self.wrong(
                f"it is cut short or damaged: {what} should take {count} bytes from byte "
                f"{self.position} on, and {self.left} are left: download or copy it again"
            )
        if self.position + count > MAX_HEADER_BYTES:
            raise self.wrong(
                f"{what} would make its header larger than {MAX_HEADER_BYTES >> 20} MiB: "
                "the file is damaged or no language model"
            )

    def take(self, count: int, what: str) -> bytes:
        """Return the next ``count`` bytes."""
        self._need(count, what)
        found = self._buffer[self._at : self._at + count]
        self._at += count
        return found

    def u32(self, what: str) -> int:
        """Return an unsigned number of 4 bytes."""
        value: int = _U32.unpack(self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Return an unsigned number of 8 bytes."""
        value: int = _U64.unpack(self.take(8, what))[0]
        return value

    def numbers(self, count: int, kind: str, what: str) -> npt.NDArray[np.generic]:
        """Return ``count`` numbers of a numpy type, [count]."""
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize, what), kind)

    def text(self, what: str, limit: int) -> str:
        """Return a length-prefixed UTF-8 text; invalid bytes become lone surrogates."""
        length = self.u64(what)
        if length > limit:
            self.check(length, what)
            raise self.wrong(f"{what} has {length} bytes, expected at most {limit}")
        return self.take(length, what).decode("utf-8", "surrogateescape")

    def texts(self, count: int, what: str) -> list[str]:
        """Return ``count`` texts; fast, since a vocabulary has hundreds of thousands."""
        self.check(8 * count, what)
        unpack = _U64.unpack_from
        found: list[str] = []
        while len(found) < count:
            self._need(8, what)
            self._need(8 + unpack(self._buffer, self._at)[0], what)
            buffer, at, end = self._buffer, self._at, len(self._buffer)
            for _ in range(count - len(found)):
                start = at + 8
                if start > end or (stop := start + unpack(buffer, at)[0]) > end:
                    break
                found.append(buffer[start:stop].decode("utf-8", "surrogateescape"))
                at = stop
            self._at = at
        return found

    def _need(self, count: int, what: str) -> None:
        """Load the next ``count`` bytes into the buffer."""
        there = len(self._buffer) - self._at
        if there >= count:
            return
        self.check(count, what)
        kept = self._buffer[self._at :]
        self._before, self._at = self.position, 0
        self._buffer = kept + self._file.read(max(count - there, CHUNK))
        if len(self._buffer) < count:
            raise self.wrong("it became shorter while it was read: copy it again")


MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 16
MAX_TENSORS = 1 << 18
MAX_ELEMENTS = 1 << 25
MAX_TEXTS = 1 << 22
MAX_KEY_BYTES = 1 << 16
MAX_TEXT_BYTES = 16 << 20
MAX_NAME_BYTES = 63  # ggml's GGML_MAX_NAME, less the terminating zero
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
# The fewest bytes of an entry and of a tensor info, which limit any count.
LEAST_ENTRY_BYTES = 8 + 1 + 4 + 1
LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor's entry in the header.

    Attributes:
        name: as llama.cpp knows it.
        shape: row length first, as ggml counts.
        type: ``F32``, ``Q4_K`` and so on.
        bytes: size of its data.
        start: of its data, from the beginning of the file.

    """

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int
    start: int = field(default=0, compare=False)

    @property
    def parameters(self) -> int:
        """Number of its parameters."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Number of its rows; those of stacked matrices are counted together."""
        return self.parameters // self.shape[0]


@dataclass(frozen=True)
class GgufHeader:
    """A header whose every length was checked against the file.

    Attributes:
        version: 2 or 3.
        metadata: numbers, texts, lists of texts, and numpy arrays of numbers, by key. Bytes of a
            text that are not UTF-8 become lone surrogates.
        tensors: in the file's order.

    """

    path: Path
    size_bytes: int
    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]

    @classmethod
    def read(cls, path: str | Path) -> GgufHeader:
        """Read a file's header.

        Raises:
            BundleError: no such file, not GGUF, an unknown version or type, or damaged; for a
                truncated file the message says how many bytes are missing.

        """
        path = Path(path)
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                return _read(ByteSource(file, size, path), path, size)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BundleError(f"{one_line(str(path))} cannot be read: {one_line(reason)}") from None

    @property
    def architecture(self) -> str:
        """``general.architecture``; empty if there is none."""
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str:
        """The model's name in the metadata, or the file's own name."""
        return self.text("general.name") or self.path.stem

    @property
    def parameters(self) -> int:
        """Number of parameters in all tensors of this file."""
        return sum(tensor.parameters for tensor in self.tensors)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors of this file."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def quantisation(self) -> str:
        """Name of ``general.file_type``, else the type of most bytes."""
        named = FILE_TYPES.get(self.number("general.file_type", -1))
        return named or next(iter(self.shares), "none")

    @property
    def shares(self) -> dict[str, float]:
        """Share of the weights' bytes by tensor type, largest first."""
        counted: Counter[str] = Counter()
        for tensor in self.tensors:
            counted[tensor.type] += tensor.bytes
        total = max(1, self.weight_bytes)
        return {kind: count / total for kind, count in counted.most_common()}

    @property
    def context_length(self) -> int | None:
        """Number of tokens of the longest text, by the scaling of positions, or None."""
        stated = self.number(f"{self.architecture}.context_length", 0)
        scaling = f"{self.architecture}.rope.scaling."
        named = (self.metadata.get(scaling + key) for key in ("factor", "original_context_length"))
        factor, original = (
            float(value) if isinstance(value, int | float) and 0 < value < math.inf else 0.0
            for value in named
        )
        kind = self.text(f"{scaling}type") or "linear"  # as llama.cpp takes it
        return scaled_context(kind, stated, factor, original) or None

    @property
    def vocab_size(self) -> int | None:
        """Number of tokens, or None."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list):
            return len(tokens)
        return self.number(f"{self.architecture}.vocab_size", 0) or None

    def text(self, key: str) -> str | None:
        """Return a text of the metadata, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str, default: int) -> int:
        """Return a whole number of the metadata."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean of the metadata."""
        value = self.metadata.get(key)
        return value if isinstance(value, bool) else default


def _read(source: ByteSource, path: Path, size: int) -> GgufHeader:
    version = _version(source)
    tensor_count = source.u64("the number of tensors")
    entry_count = source.u64("the number of entries")
    _check_count(source, entry_count, MAX_ENTRIES, LEAST_ENTRY_BYTES, "metadata entries")
    _check_count(source, tensor_count, MAX_TENSORS, LEAST_TENSOR_BYTES, "tensors")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = source.text("the name of an entry", MAX_KEY_BYTES)
        if not key or key in metadata:
            raise source.wrong(f"the metadata key {one_line(key)!r} is empty or appears twice")
        metadata[key] = _value(source, source.u32("the type of an entry"), key)
    tensors = _tensors(source, tensor_count, _alignment(source, metadata))
    return GgufHeader(path, size, version, metadata, tensors)


def _version(source: ByteSource) -> int:
    if source.left < 8 or source.take(4, "the file's mark") != MAGIC:
        raise source.wrong("it does not begin with GGUF: give a GGUF file")
    version = source.u32("the version")
    if version in VERSIONS:
        return version
    if version & 0xFFFF == 0:
        raise source.wrong("it is a big-endian GGUF: give one made for little-endian machines")
    advice = "convert it again" if version < min(VERSIONS) else "upgrade edgedec and llama.cpp"
    raise source.wrong(f"GGUF version {version}, expected 2 or 3: {advice}")


def _check_count(source: ByteSource, count: int, most: int, least_bytes: int, what: str) -> None:
    if count > most:
        raise source.wrong(f"it claims {count} {what}, expected at most {most}: it is damaged")
    source.check(count * least_bytes, f"its {count} {what}")


def _value(source: ByteSource, kind: int, key: str) -> Any:
    what = f"the entry {one_line(key)!r}"
    if kind == STRING:
        return source.text(what, MAX_TEXT_BYTES)
    if kind in NUMBERS:
        value = source.numbers(1, NUMBERS[kind], what)[0].item()
        return bool(value) if kind == BOOL else value
    if kind != ARRAY:
        raise source.wrong(f"{what} has the unknown type {kind}: it is damaged or too new")
    inner = source.u32(what)
    count = source.u64(what)
    if count > (MAX_TEXTS if inner == STRING else MAX_ELEMENTS):
        raise source.wrong(f"{what} claims {count} elements: the file is damaged")
    if inner == STRING:
        return source.texts(count, what)
    if inner in NUMBERS:
        return source.numbers(count, NUMBERS[inner], what)
    # llama.cpp does not read nested arrays either, so no model has one.
    kind_name = "arrays" if inner == ARRAY else f"the unknown type {inner}"
    raise source.wrong(f"{what} is an array of {kind_name}: expected texts or numbers")


def _alignment(source: ByteSource, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    whole = isinstance(alignment, int) and not isinstance(alignment, bool)
    if not whole or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        found = one_line(str(alignment))
        raise source.wrong(f"general.alignment is {found}, expected a power of two")
    return int(alignment)


def _tensors(source: ByteSource, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    found: dict[str, TensorInfo] = {}
    end = 0
    for _ in range(count):
        tensor = _tensor(source)
        if tensor.name in found:
            raise source.wrong(f"two tensors are named {one_line(tensor.name)!r}: it is damaged")
        # As in llama.cpp, which only takes consecutive tensors, so none can overlap.
        offset = source.u64(f"the tensor {one_line(tensor.name)!r}")
        if offset != end:
            raise source.wrong(
                f"the tensor {one_line(tensor.name)!r} begins at {offset}, expected {end}: "
                "the file is damaged"
            )
        found[tensor.name] = replace(tensor, start=offset)
        end += _aligned(tensor.bytes, alignment)
        last = offset + tensor.bytes
    data = _aligned(source.position, alignment)
    if found:
        needed = data + last
        missing = needed - (source.position + source.left)
        if missing > 0:
            raise source.wrong(
                f"it is cut short: {missing} of {needed} bytes are missing, download or copy it "
                "again"
            )
    return tuple(replace(tensor, start=data + tensor.start) for tensor in found.values())


def _tensor(source: ByteSource) -> TensorInfo:
    name = source.text("the name of a tensor", MAX_NAME_BYTES)
    what = f"the tensor {one_line(name)!r}"
    dims = source.u32(what)
    if not 1 <= dims <= MAX_DIMS:
        raise source.wrong(f"{what} has {dims} dimensions, expected 1 to {MAX_DIMS}")
    shape = tuple(source.u64(what) for _ in range(dims))
    code = source.u32(what)
    kind = TENSOR_TYPES.get(code)
    if kind is None:
        raise source.wrong(f"{what} has the unknown type {code}: it is damaged or too new")
    numbers = math.prod(shape)
    if not 0 < numbers < 1 << 60 or shape[0] % kind.block:
        raise source.wrong(f"{what} of type {kind.name} has the impossible shape {list(shape)}")
    return TensorInfo(name, shape, kind.name, numbers // kind.block * kind.block_bytes)


def _aligned(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
