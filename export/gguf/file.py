"""A GGUF file as the source of a model: its keys and tensors, read without trusting it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export.tensors import FloatArray
from edgedec.gguf.header import GgufHeader, TensorInfo
from edgedec.gguf.parts import decodable_parts

# Types of blocks of 32 that are whole numbers times a scale, and the bits that these numbers need.
# A block begins with its scale in half precision.
BLOCKS_OF_32 = {"Q4_0": 4, "IQ4_NL": 8, "Q5_0": 8, "Q8_0": 8}
# Of a list that should be one number.
_SHOWN = 16
# Beyond any known decoder; refused before such sizes are multiplied.
_LARGEST = 2**31 - 1


class ModelFile:
    """A language model in one GGUF file, or in several parts of one.

    Attributes:
        header: of the first part, which has the metadata.
        parts: the files.
        tensors: by name.

    Raises:
        BundleError: it is damaged, or a part is missing.
        CheckpointError: two parts have a tensor of one name.

    """

    def __init__(self, path: Path) -> None:
        self.header = GgufHeader.read(path)
        self.parts = decodable_parts(self.header)
        self.tensors: dict[str, TensorInfo] = {}
        self._where: dict[str, Path] = {}
        for part in self.parts:
            header = self.header if part == self.header.path else GgufHeader.read(part)
            for tensor in header.tensors:
                if tensor.name in self.tensors:
                    raise self.wrong(f"two parts have the tensor {one_line(tensor.name)!r}")
                self.tensors[tensor.name] = tensor
                self._where[tensor.name] = part

    def wrong(self, message: str) -> CheckpointError:
        """Return an error that names the file."""
        return CheckpointError(f"{one_line(str(self.header.path))}: {message}")

    def unknown(self, message: str) -> UnsupportedArchitecture:
        """Return the error for a model that cannot be read back."""
        path = one_line(str(self.header.path))
        return UnsupportedArchitecture(
            f"{path}: {message}: run the file as it is, in llama.cpp, or export the checkpoint that"
            " it was made from"
        )

    # -- keys, without the prefix of the architecture -------------------------------------------

    def value(self, key: str) -> Any:
        """Return a key's value; an array of equal numbers, one for each layer, is that number."""
        found = self.header.metadata.get(f"{self.header.architecture}.{key}")
        if not isinstance(found, np.ndarray):
            return found
        if len(found) and (found == found[0]).all():
            return found[0].item()
        return found[:_SHOWN].tolist()

    def count(self, key: str, default: int | None = None) -> int:
        """Return a size; without a default, a missing one raises CheckpointError."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self.wrong(f"{key} is {one_line(str(value))}, expected a size")
        return value

    def counts_by_layer(self, key: str) -> list[int]:
        """Return a size for each layer; the file may state one for all."""
        layers = self.count("block_count")
        found: Any = self.header.metadata.get(f"{self.header.architecture}.{key}")
        if not isinstance(found, np.ndarray):
            return [self.count(key)] * min(layers, len(self.tensors))
        counts: list[int] = found.tolist()
        if len(counts) != layers or any(type(count) is not int or count < 0 for count in counts):
            raise self.wrong(f"{key} is {one_line(str(counts[:_SHOWN]))}, expected {layers} sizes")
        return counts

    def above_zero(self, key: str, default: float | None = None) -> float:
        """Return a number above 0; see ``number``."""
        value = self.number(key, default)
        if value <= 0:
            raise self.wrong(f"{key} is {value}, expected a number above 0")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number, the shortest among those that are the same in the file's 32 bits."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"{key} is {one_line(str(value))}, expected a number")
        if not math.isfinite(value):
            raise self.wrong(f"{key} is {value}, expected a finite number")
        return value if isinstance(value, int) else float(str(np.float32(value)))

    # -- tensors --------------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's extents in numpy's order; CheckpointError if there is none."""
        return self._tensor(name).shape[::-1]

    def raw(self, name: str, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of rows ``start`` to ``stop``, ``[rows, bytes of a row]``.

        Rows are those of the last two axes: matrices of a stack lie one under the other.
        """
        tensor = self._tensor(name)
        size = tensor.bytes // tensor.rows
        where = self._where[name]
        try:
            with open_regular(where) as file:
                file.seek(tensor.start + start * size)
                data = file.read((stop - start) * size)
        except OSError as error:
            raise CheckpointError(f"{where} cannot be read: {error.strerror}") from None
        if len(data) != (stop - start) * size:
            raise CheckpointError(f"{where} became shorter while it was read: copy it again")
        return np.frombuffer(data, np.uint8).reshape(stop - start, size)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        """Return rows ``start`` to ``stop`` as float32; see ``raw``."""
        found: FloatArray = _numbers(self.raw(name, start, stop), self._tensor(name).type)
        return found

    def numbers(self, name: str, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        """Return rows of a tensor of ``BLOCKS_OF_32`` as whole numbers and scales of blocks.

        Returns:
            ``[rows, columns]`` and ``[rows, blocks]``, both float32.

        """
        tensor = self._tensor(name)
        size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.type]][1]
        blocks = self.raw(name, start, stop).reshape(-1, size).copy()
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        blocks[:, :2] = np.array([1], "<f2").view(np.uint8)
        whole = _numbers(blocks, tensor.type)
        return whole.reshape(stop - start, -1), scales.reshape(stop - start, -1)

    def read(self, name: str) -> FloatArray:
        """Return a whole tensor as float32."""
        tensor = self._tensor(name)
        rows = self.rows(name, 0, tensor.rows)
        return rows.reshape(self.shape(name))

    def check_types(self) -> None:
        """Refuse a file with a type whose numbers cannot be read."""
        for kind in dict.fromkeys(tensor.type for tensor in self.tensors.values()):
            try:
                _block(kind)
            except (KeyError, NotImplementedError):
                raise self.unknown(f"its weights of type {kind} cannot be read") from None

    def _tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise self.wrong(
                f"it has no tensor {name}, which this {self.header.architecture} needs"
            )
        return self.tensors[name]


def _block(kind: str) -> FloatArray:
    """Read a block of zeros, or raise KeyError or NotImplementedError."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    return _numbers(np.zeros((1, size), np.uint8), kind)


def _numbers(data: npt.NDArray[np.uint8], kind: str) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):  # the numbers are checked by who reads them
        found: FloatArray = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind])
    return found
