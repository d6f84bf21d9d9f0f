"""Quantises a GGUF with llama.cpp's own quantiser."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from edgedec.errors import ExportError
from edgedec.export.gguf import child
from edgedec.export.job import ExportJob
from edgedec.export.options import Progress
from edgedec.hardware.device import available_cores

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
    source: Path, out: Path, job: ExportJob, weighing: Path | None, progress: Progress
) -> None:
    """Quantise ``source`` to ``out``.

    Args:
        source: a GGUF in f32, f16 or bf16.
        out: to be written.
        job: says which weights.
        weighing: an ``.npz`` with the importance of columns by tensor name, or None.
        progress: called as ``out`` grows.

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
            f"no space left for {job.weights}, or the disk refused it: free some or give"
            " another --out; nothing was written"
        ) from None
    progress(stage, total, total)
