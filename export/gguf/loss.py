"""The quantisation error of each matrix, read from the files before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

from edgedec.errors import ExportError
from edgedec.export.gguf.quantize import FTYPES
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray


def tensor_errors(plain: Path, quantised: Path) -> dict[str, float]:
    """Return each quantised matrix's relative error, root of squared error over squared weights."""
    sources = {tensor.name: tensor for tensor in gguf.GGUFReader(plain).tensors}
    errors = {}
    for tensor in gguf.GGUFReader(quantised).tensors:
        source = sources[tensor.name]
        if tensor.tensor_type == source.tensor_type:
            continue
        lost = whole = 0.0
        for ours, theirs in zip(_rows(quantised, tensor), _rows(plain, source), strict=True):
            lost += float(np.square(ours - theirs, dtype=np.float64).sum())
            whole += float(np.square(theirs, dtype=np.float64).sum())
        errors[tensor.name] = math.sqrt(lost / whole) if whole else 0.0
    return errors


def fallbacks(file: Path, weights: str) -> tuple[str, ...]:
    """Return the tensors that llama.cpp stored in another type because their rows fit no block.

    Raises:
        ExportError: nothing fits.

    """
    block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[FTYPES[weights][1]]][0]
    fallen: dict[str, int] = {}
    fitting = 0
    for tensor in gguf.GGUFReader(file).tensors:
        kind = tensor.tensor_type.name
        if kind == "F32":
            continue
        if int(tensor.shape[0]) % block == 0:
            fitting += 1
        else:
            fallen[kind] = fallen.get(kind, 0) + 1
    if not fitting:
        advice = "q4_0 or q8_0, whose blocks are of 32" if block > 32 else "f16"
        raise ExportError(
            f"{weights} needs rows in multiples of {block}, this model has none: use {advice}"
        )
    if not fallen:
        return ()
    listed = ", ".join(f"{count} to {kind}" for kind, count in sorted(fallen.items()))
    return (f"rows that fit no block of {weights}: matrices fell back, {listed}",)


def _rows(file: Path, tensor: gguf.ReaderTensor) -> Iterator[FloatArray]:
    """Yield a tensor's values, some rows at a time; mapped pages would count as memory."""
    columns = int(tensor.shape[0])
    rows = math.prod(int(extent) for extent in tensor.shape[1:])
    row_bytes = int(tensor.n_bytes) // rows
    step = max(CHUNK_NUMBERS // columns, 1)
    for start in range(0, rows, step):
        count = min(step, rows - start)
        offset = int(tensor.data_offset) + start * row_bytes
        stored = np.fromfile(file, np.uint8, count * row_bytes, offset=offset)
        kind = tensor.tensor_type
        plain = {"F32": np.float32, "F16": np.float16}.get(kind.name)
        shaped = stored.reshape(count, row_bytes)
        yield (
            gguf.quants.dequantize(shaped, kind)
            if plain is None
            else shaped.view(plain).astype(np.float32)
        )
