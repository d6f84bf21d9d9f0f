"""Writes a graph with its weights packed for this processor's kernels.

ONNX Runtime packs weights at every load, into memory of the process. A session can write the
packed form beside the weights; a session opened on that file maps both, so that the packed weights
are pages of a file: shared by all processes that map it, and dropped by the system when memory is
short.

It does not save the packing itself: ONNX Runtime 1.32 packs every weight again, looks the result up
by its hash, compares the two byte by byte, and then keeps the mapped one. So ONNX Runtime itself
refuses a packed file that does not belong to its weights, and the unpacked weights in the file must
stay: when they were replaced by holes, the model loaded but its logits were wrong. Both forms of a
weight must also be in the same file, and no link may lead out of its folder, so a packed file takes
the space of both on the disk.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.opening import SessionFailed, one_line, session_options

# Smaller weights stay in the graph, since mapping them would gain nothing.
_LEAST_EXTERNAL = 1024


def pack(
    model: str | bytes, graph: Path, weights: Path, folder: Path | None = None
) -> ort.InferenceSession:
    """Write a packed graph and its weights. An interruption leaves what was written so far.

    Args:
        model: path of an ONNX file whose external data were checked, or its bytes.
        graph: written; an optimized graph that needs no optimization when it is loaded.
        weights: written, in the folder of ``graph``. It has the packed and the unpacked weights,
            each above a megabyte at an offset of its own page.
        folder: of the external data, for a model given as bytes.

    Returns:
        The session that wrote them, whose own packed weights are in its memory.

    Raises:
        SessionFailed: ONNX Runtime refuses the model, or cannot write.

    """
    options = session_options(1)
    options.optimized_model_filepath = str(graph)
    entries = {
        "optimized_model_external_initializers_file_name": weights.name,
        "optimized_model_external_initializers_min_size_in_bytes": str(_LEAST_EXTERNAL),
        "save_external_prepacked_constant_initializers": "1",
    }
    if folder is not None:
        entries["model_external_initializers_file_folder_path"] = str(folder)
    for name, value in entries.items():
        options.add_session_config_entry(f"session.{name}", value)
    try:
        session = ort.InferenceSession(model, options, [CPU], enable_fallback=0)
    except Exception as error:  # ONNX Runtime's own errors share no public base
        raise SessionFailed(one_line(error)) from error
    weights.touch()  # a graph without large weights has no such file
    return session
