"""Reads and writes safetensors for tools of this package, at most one tensor at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from edgedec._support.atomic import replacing
from edgedec.errors import CheckpointError

Floats = npt.NDArray[np.float32]
_CODES = {"float16": ("F16", 2), "float32": ("F32", 4)}


class TensorFolder:
    """The tensors of the ``*.safetensors`` files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self._where: dict[str, Path] = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="numpy") as opened:
                self._where.update(dict.fromkeys(opened.keys(), file))
        if not self._where:
            raise CheckpointError(f"{folder} has no *.safetensors")

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._where)

    def read(self, name: str) -> Floats:
        """Return one tensor as float32."""
        if name not in self._where:
            raise CheckpointError(f"the checkpoint has no tensor {name}")
        with safe_open(self._where[name], framework="numpy") as opened:
            values: Floats = np.asarray(opened.get_tensor(name)).astype(np.float32)
        return values


def write_tensors(
    file: Path,
    headers: Mapping[str, tuple[str, tuple[int, ...]]],
    chunks: Callable[[str], Iterator[Floats]],
) -> None:
    """Write one safetensors file without ever holding a whole tensor.

    Args:
        file: replaced when all is written.
        headers: name -> (``float16`` or ``float32``, shape).
        chunks: the values of a tensor in row-major order, in pieces of any size.

    Raises:
        CheckpointError: a value does not fit float16, or a tensor has too few or many values.

    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in headers.items():
        code, size = _CODES[dtype]
        end = offset + size * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data starts aligned
    with replacing(file) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, (dtype, shape) in headers.items():
            written = 0
            for chunk in chunks(name):
                stream.write(_narrow(name, chunk, dtype).tobytes())
                written += chunk.size
            if written != math.prod(shape):
                raise CheckpointError(f"{name}: {written} values for shape {list(shape)}")


def _narrow(name: str, values: Floats, dtype: str) -> npt.NDArray[np.floating]:
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    if not np.isfinite(narrow).all():
        raise CheckpointError(f"{name} holds values that are not finite in {dtype}")
    return narrow
