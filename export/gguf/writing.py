"""Writes a decoder as one GGUF file in f32, f16 or bf16, some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import gguf
import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgedec.errors import ExportError
from edgedec.export.gguf.architectures import Architecture
from edgedec.export.gguf.metadata import rope_factors
from edgedec.export.gguf.naming import TensorPlace
from edgedec.export.gguf.pieces import columns, exchanged, pieces
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

# Name -> numpy's type, GGUF's type, llama.cpp's number for a file of them.
PLAIN: Mapping[str, tuple[npt.DTypeLike, gguf.GGMLQuantizationType, int]] = {
    "f32": (np.float32, gguf.GGMLQuantizationType.F32, 0),
    "f16": (np.float16, gguf.GGMLQuantizationType.F16, 1),
    "bf16": (ml_dtypes.bfloat16, gguf.GGMLQuantizationType.BF16, 32),
}

_LARGEST_FLOAT = float(np.finfo(np.float32).max)
# Of a GGUF key: a text, a number, a flag, or a list of values of one type.
Value = str | int | float | bool | list[Any]


def write(
    file: Path,
    spec: DecoderSpec,
    tensors: TensorReader,
    architecture: Architecture,
    metadata: Mapping[str, Value],
    weights: str,
) -> None:
    """Write a model whose matrices are ``weights`` (a key of PLAIN) and the rest f32.

    ``metadata`` are all keys but ``general.architecture`` and ``general.file_type``. Raises
    ExportError for a number that does not fit ``weights``.
    """
    writer = gguf.GGUFWriter(file, architecture.name)
    writer.add_file_type(PLAIN[weights][2])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in metadata.items():
        _add(writer, key, value)
    small = {**rope_factors(spec, architecture), **architecture.constants(spec)}
    streams: list[_Whole | _Stream] = [
        *(_Whole(name, values) for name, values in small.items()),
        *(
            _Stream(place, spec, tensors, architecture, weights)
            for place in architecture.layout.places(spec)
        ),
    ]
    for stream in streams:
        writer.add_tensor_info(
            stream.name, stream.shape, np.dtype(np.float32), stream.nbytes, stream.kind
        )
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for stream in streams:
            # The writer only reads an array's size and calls its ``tofile``.
            writer.write_tensor_data(cast("npt.NDArray[Any]", stream))
    finally:
        writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    least, most = (-_LARGEST_FLOAT, _LARGEST_FLOAT) if isinstance(value, float) else (0, 2**32 - 1)
    if isinstance(value, int | float) and not least <= value <= most:
        raise ExportError(f"{key} is {value}, which a GGUF file cannot hold")
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


class _Whole:
    """A small tensor that is computed."""

    kind = gguf.GGMLQuantizationType.F32

    def __init__(self, name: str, values: FloatArray) -> None:
        self.name, self._values = name, np.ascontiguousarray(values, np.float32)
        self.shape, self.nbytes = values.shape, self._values.nbytes

    def tofile(self, file: IO[bytes]) -> None:
        """Write it to the file."""
        file.write(self._values.tobytes())


class _Stream:
    """A tensor that is read in chunks while it is written."""

    def __init__(
        self,
        place: TensorPlace,
        spec: DecoderSpec,
        tensors: TensorReader,
        architecture: Architecture,
        weights: str,
    ) -> None:
        self.name, self.shape = place.name, place.shape
        self._place, self._spec, self._tensors = place, spec, tensors
        self._architecture, self._weights = architecture, weights
        self._dtype, self.kind, _ = PLAIN[weights if place.matrix else "f32"]
        self.nbytes = math.prod(place.shape) * np.dtype(self._dtype).itemsize

    def tofile(self, file: IO[bytes]) -> None:
        """Write it to the file, in chunks of bounded size."""
        for part in self._chunks():
            with np.errstate(over="ignore"):
                narrow = part.astype(self._dtype)
            # The source is finite, so an infinity comes from a value above f16's 65504.
            if self._dtype == np.float16 and not np.isfinite(narrow).all():
                raise ExportError(
                    f"{self.name} has weights too large for {self._weights}: use bf16 or f32"
                )
            file.write(narrow.tobytes())

    def _chunks(self) -> Iterator[FloatArray]:
        place, spec = self._place, self._spec
        names = dict(place.parts)
        groups = columns(spec, place.parts[0][0], place.layer)
        found = pieces(spec, tuple(names), place.layer)
        for piece in found:
            factor = np.float32(self._architecture.factor(spec, piece.role))
            end = piece.start + piece.rows
            yield self._tensors.rows(names[piece.role], piece.start, end) * factor
        if not found:
            yield from (exchanged(part, groups) for part in self._stacked())

    def _stacked(self) -> Iterator[FloatArray]:
        """Yield the rows of canonical tensors one under the other."""
        left = math.prod(self.shape)
        for role, name in self._place.parts:
            order = self._architecture.order(self._spec, role)
            factor = np.float32(self._architecture.factor(self._spec, role))
            rows, *others = self._tensors.shape(name)
            columns = int(np.prod(others))
            rows = min(rows, left // columns)
            left -= rows * columns
            step = max(CHUNK_NUMBERS // (columns * len(order)), 1) * len(order)
            for start in range(0, rows, step):
                part = self._tensors.rows(name, start, min(start + step, rows))
                if len(order) > 1:
                    heads = part.reshape(-1, len(order), *part.shape[1:])
                    part = heads[:, order].reshape(part.shape)
                yield part if factor == 1 else part * factor
