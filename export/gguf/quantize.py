"""Quantises a GGUF with llama.cpp's own quantiser, and measures each matrix's error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np

from edgedec.errors import ExportError
from edgedec.export.gguf import child
from edgedec.export.job import ExportJob
from edgedec.export.options import Progress
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray
from edgedec.gguf.header import GgufHeader, TensorInfo
from edgedec.hardware.device import available_cores

# llama.cpp's numbers of its quantisation types (llama_ftype), and the type of most matrices.
FTYPES: Mapping[str, tuple[int, str]] = {
    "q2_k": (10, "Q2_K"),
    "q3_k_s": (11, "Q3_K"),
    "q3_k_m": (12, "Q3_K"),
    "q3_k_l": (13, "Q3_K"),
    "q4_0": (2, "Q4_0"),
    "q4_1": (3, "Q4_1"),
    "iq4_nl": (25, "IQ4_NL"),
    "iq4_xs": (30, "IQ4_XS"),
    "q4_k_s": (14, "Q4_K"),
    "q4_k_m": (15, "Q4_K"),
    "q5_0": (8, "Q5_0"),
    "q5_1": (9, "Q5_1"),
    "q5_k_s": (16, "Q5_K"),
    "q5_k_m": (17, "Q5_K"),
    "q6_k": (18, "Q6_K"),
    "q8_0": (7, "Q8_0"),
}
# Rows that the quantiser keeps in memory; its default is 8 GiB.
_BUFFER_BYTES = 256 << 20


def quantise(
    source: Path, out: Path, job: ExportJob, weighing: Path | None, progress: Progress
) -> None:
    """Quantise ``source``, in f32, f16 or bf16, to ``out``, or raise ExportError.

    ``weighing`` is an ``.npz`` with the importance of columns by tensor name, or None.
    """
    stage, total = f"{job.stage} {job.weights}", source.stat().st_size

    def grown() -> None:
        with suppress(FileNotFoundError):
            progress(stage, min(out.stat().st_size, total), total)

    request = {
        "task": "quantiser",
        "source": str(source),
        "out": str(out),
        "ftype": FTYPES[job.weights][0],
        "threads": available_cores(),
        "buffer_bytes": _BUFFER_BYTES,
        "importance": None if weighing is None else str(weighing),
    }
    try:
        child.ask(request, grown)
    except ExportError as error:
        if "iostream" not in str(error):  # the only word of C++ about a file that cannot be written
            raise
        raise ExportError(
            f"no space left for {job.weights}, or the disk refused it: free some or use"
            " another disk; nothing was written"
        ) from None
    progress(stage, total, total)


# -- quantisation error, from the files before and after -----------------------------------------


def tensor_errors(plain: Path, quantised: Path) -> dict[str, float]:
    """Return each quantised matrix's relative error: root of squared error over squared weights."""
    sources = {tensor.name: tensor for tensor in GgufHeader.read(plain).tensors}
    errors = {}
    for tensor in GgufHeader.read(quantised).tensors:
        source = sources[tensor.name]
        if tensor.type == source.type:
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
    for tensor in GgufHeader.read(file).tensors:
        if tensor.type == "F32":
            continue
        if tensor.shape[0] % block == 0:
            fitting += 1
        else:
            fallen[tensor.type] = fallen.get(tensor.type, 0) + 1
    if not fitting:
        advice = "q4_0 or q8_0, whose blocks are of 32" if block > 32 else "f16"
        raise ExportError(
            f"{weights} needs rows in multiples of {block}, this model has none: use {advice}"
        )
    if not fallen:
        return ()
    listed = ", ".join(f"{count} to {kind}" for kind, count in sorted(fallen.items()))
    return (f"rows that fit no block of {weights}: matrices fell back, {listed}",)


def _rows(file: Path, tensor: TensorInfo) -> Iterator[FloatArray]:
    """Yield a tensor's values, some rows at a time; mapped pages would count as memory."""
    kind = gguf.GGMLQuantizationType[tensor.type]
    row_bytes = tensor.bytes // tensor.rows
    step = max(CHUNK_NUMBERS // tensor.shape[0], 1)
    for start in range(0, tensor.rows, step):
        count = min(step, tensor.rows - start)
        offset = tensor.start + start * row_bytes
        stored = np.fromfile(file, np.uint8, count * row_bytes, offset=offset)
        yield gguf.quants.dequantize(stored.reshape(count, row_bytes), kind)
