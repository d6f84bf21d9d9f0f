"""Keeps packed weights on this machine, and opens sessions that map them.

They are made when ``edgedec prepare`` asks for them, not at the first load. For half a billion
parameters in int4 a first load takes 0.6 s; hashing the bundle (0.3 s), writing 525 MB (0.3 s) and
waiting for the disk (0.3 s) more than doubles that on a fast disk, would take half a minute on a
slow card, and takes twice the model's space. It saves 200 MB of memory here, and 0.1 s of each load
whose files are in the page cache; a cold load reads twice as much. So it is left to the user. The
result of the search for a padding takes no space, so the first load stores it
(``edgedec.runtimes.onnx.padding``).

The key of a packed file consists of its bundle's bytes, the processor's features, the version of
ONNX Runtime and the options of the graph. The bytes are hashed once, and again when a file's
length, times or inode change (``edgedec._support.opened_before``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime as ort

from edgedec._support.fields import one_line
from edgedec._support.kept import Folder, NoRoom, Unusable, any_folder
from edgedec.bundle.onnx_file import ModelFile, read_model_file
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.machine import cpu_fields, cpu_name
from edgedec.records.adapter import Prepared
from edgedec.records.place import CPU as PROCESSOR
from edgedec.runtimes._ort.devices import CPU, choose
from edgedec.runtimes._ort.opening import SessionFailed, open_session, session_options
from edgedec.runtimes._ort.opening import one_line as reason_of
from edgedec.runtimes._ort.saved import content_digest, locations

KIND = "packed"
# 48 MB of weights load in 48 ms rather than 57 and take 36 MB less; 9 MB load in 13 ms rather than
# 15 and take 6 MB less, which is not worth a file.
LEAST_BYTES = 32 << 20
GRAPH, WEIGHTS = "model.onnx", "model.onnx.data"
_FORMAT = 1
# Packed and unpacked weights; packed ones include sums.
_GROWTH = 2.2

_log = logging.getLogger("edgedec")


def open_kept(
    file: Path,
    stored: ModelFile,
    threads: int,
    providers: Sequence[str] = (),
    device: str | None = None,
) -> ort.InferenceSession | None:
    """Open the packed form of a graph; None if there is none, or it cannot be used.

    Args:
        stored: its contents, from ``read_model_file``.
        providers, device: as ``open_inference`` takes them; only ONNX Runtime's own CPU kernels
            have a packed form.

    """
    if device not in (None, PROCESSOR) or not set(providers) <= {CPU}:
        return None
    kept = None
    try:
        kept = _kept(file, stored)
        found = None if kept is None else kept.find()
        return None if found is None else open_packed(found, threads)
    except (OSError, Unusable, SessionFailed) as error:
        if kept is not None and not isinstance(error, OSError):
            kept.remove()
        reason = one_line(str(error))
        _log.warning(f"{file}: its packed weights are not used ({reason}): loading without them")
        return None


def open_packed(folder: Path, threads: int) -> ort.InferenceSession:
    """Open a folder that ``pack`` wrote.

    Raises:
        SessionFailed: ONNX Runtime refuses it, as it does if packed and unpacked weights differ.

    """
    options = session_options(threads)
    # The graph was optimized before it was written.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return open_session(str(folder / GRAPH), options, choose(None, ()), threads)


def kept_bytes(file: Path) -> int | None:
    """Return the size of a graph's packed form on the disk; None if there is none."""
    try:
        kept = _kept(file, read_model_file(file))
        found = None if kept is None else kept.find()
    except (OSError, Unusable):
        return None
    return None if found is None else sum(part.stat().st_size for part in found.iterdir())


def prepare(file: Path, check: Callable[[Path], None]) -> Prepared:
    """Write the packed form of a graph, unless it exists.

    Args:
        check: called with the written folder before it is used; raises EdgedecError if the model's
            results differ with it.

    Raises:
        RuntimeUnavailable: it cannot be packed, or cannot be kept here.

    """
    begin = time.perf_counter()
    stored = read_model_file(file)
    if stored.weight_bytes < LEAST_BYTES:
        return Prepared(f"not worth packing: below {LEAST_BYTES / 1e6:.0f} MB", 0, 0.0)
    try:
        kept = Folder(KIND, _prefix(file, stored) + _digest(file, stored))
        found, what = kept.usable(), "packed before"
        if found is None:
            expected = int(_GROWTH * stored.weight_bytes)
            with kept.writing(f"{file.parent.name} of {file.parent.parent}", expected) as new:
                pack(str(file), new / GRAPH, new / WEIGHTS)
                check(new)
            found, what = kept.path, "packed"
        size = sum(part.stat().st_size for part in found.iterdir())
    except SessionFailed as error:
        raise RuntimeUnavailable(
            f"{file}: its weights cannot be packed ({error}): it loads as before"
        ) from error
    except NoRoom as error:
        raise RuntimeUnavailable(f"{file}: not packed: that takes {error.strerror}") from None
    except OSError as error:
        raise RuntimeUnavailable(
            f"{file}: its packed weights cannot be kept in the cache"
            f" ({error.strerror or error}): it loads as before"
        ) from error
    return Prepared(what, size, time.perf_counter() - begin)


def _kept(file: Path, stored: ModelFile) -> Folder | None:
    """Return the folder of a graph's packed form; None if there surely is none."""
    prefix = _prefix(file, stored)
    return Folder(KIND, prefix + _digest(file, stored)) if any_folder(KIND, prefix) else None


def _prefix(file: Path, stored: ModelFile) -> str:
    """Return the part of a key that does not depend on the weights, which take time to hash."""
    fields = cpu_fields()
    sizes = sorted((name, (file.parent / name).stat().st_size) for name in locations(stored))
    facts = (
        _FORMAT, file.stat().st_size, sizes, ort.__version__, ort.get_build_info(), cpu_name(),
        fields.get("flags") or fields.get("features") or "",
    )  # fmt: skip
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16] + "-"


def _digest(file: Path, stored: ModelFile) -> str:
    return content_digest(file, stored, KIND, ort.__version__)[:24]


# -- writing a graph with its weights packed for this processor's kernels -----------------------
#
# ONNX Runtime packs weights at every load, into memory of the process. A session can write the
# packed form next to the weights; a session opened on that file maps both, so that the packed
# weights are pages of a file: shared by all processes that map it, and dropped by the system when
# memory is short.
#
# This saves memory but no time: ONNX Runtime 1.32 still packs every weight, looks the result up by
# its hash, compares the two byte by byte, and then keeps the mapped one. So ONNX Runtime itself
# refuses a packed file that does not belong to its weights, and the unpacked weights in the
# file must stay: when they were replaced by holes, the model loaded but its logits were wrong.
# Both forms of a weight must also be in the same file, and no link may lead out of its folder, so
# a packed file takes the space of both on the disk.

# Smaller weights stay in the graph, since mapping them would gain nothing.
_LEAST_EXTERNAL = 1024


def pack(
    model: str | bytes, graph: Path, weights: Path, folder: Path | None = None
) -> ort.InferenceSession:
    """Write a packed graph and its weights. An interruption leaves what was written so far.

    Args:
        model: path of an ONNX file whose external data were checked, or its bytes.
        graph: file to write, an optimized graph that needs no optimization when it is loaded.
        weights: file to write, in the folder of ``graph``, with the packed and the unpacked
            weights; each one above a megabyte starts on a page of its own.
        folder: of the external data, for a model given as bytes.

    Returns:
        The session that wrote them, whose packed weights are in the memory of this process.

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
        raise SessionFailed(reason_of(error)) from error
    weights.touch()  # a graph without large weights has no such file
    return session
