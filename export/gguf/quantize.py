"""From a plain GGUF to a small one, by llama.cpp's own quantiser."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import gguf

from edgedec.errors import ExportError
from edgedec.export.gguf import child
from edgedec.export.job import Job
from edgedec.export.options import Progress

# llama.cpp's numbers of its mixtures (llama_ftype), and the type most of their matrices get.
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
    source: Path, out: Path, job: Job, weighing: Path | None, progress: Progress
) -> tuple[str, ...]:
    """Quantise ``source`` to ``out``; returns notes on what came out otherwise than asked.

    Args:
        source: a GGUF in f32, f16 or bf16.
        out: to be written.
        job: says which weights.
        weighing: an ``.npz`` with the importance of columns by tensor name, or None.
        progress: told how ``out`` grows.

    Raises:
        ExportError: the quantiser failed, or the disk is full.

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
        "threads": os.cpu_count() or 1,
        "buffer_bytes": _BUFFER_BYTES,
        "importance": None if weighing is None else str(weighing),
    }
    try:
        child.ask(request, grown)
    except ExportError as error:
        if "iostream" not in str(error):  # all that C++ says about a file it cannot write to
            raise
        raise ExportError(
            f"no space left for {job.weights}, or the disk refused it: free some or give"
            " another --out; nothing was written"
        ) from None
    progress(stage, total, total)
    return _notes(out, job.weights)


def _notes(file: Path, weights: str) -> tuple[str, ...]:
    """What llama.cpp stored in another type because rows fit no block of the right one.

    Raises:
        ExportError: nothing fits.

    """
    wanted = FTYPES[weights][1]
    kinds: dict[str, Counter[str]] = {"asked": Counter(), "fell back": Counter()}
    for tensor in gguf.GGUFReader(file).tensors:
        if len(tensor.shape) < 2 or tensor.tensor_type.name == "F32":
            continue
        kind, columns = tensor.tensor_type.name, int(tensor.shape[0])
        block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[wanted]][0]
        fits = columns % block == 0
        kinds["asked" if fits else "fell back"][kind] += 1
    fallen = ", ".join(f"{count} to {kind}" for kind, count in sorted(kinds["fell back"].items()))
    if not kinds["asked"]:
        raise ExportError(
            f"{weights} needs rows in multiples of"
            f" {gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[wanted]][0]}, this model has none:"
            " use q4_0 or q8_0, whose blocks are of 32"
        )
    if not fallen:
        return ()
    return (f"rows that fit no block of {weights}: matrices fell back, {fallen}",)
