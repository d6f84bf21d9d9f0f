"""Opens a graph that was found sound: threads, providers, session options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnxruntime as ort

from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.placement.device import available_cores

CPU = "CPUExecutionProvider"
_SPIN_US = 100
_BYTES_PER_THREAD = 1_500_000


def model_file(path: Path | str, name: str) -> Path:
    """The graph's file, given that or the folder where it stands by this name."""
    file = Path(path)
    return file / name if file.is_dir() else file


def open_inference(file: Path, threads: int, providers: Sequence[str]) -> ort.InferenceSession:
    """Load a graph. Its external data must have been checked: see ``file.py``.

    Args:
        file: the graph's.
        threads: for one pass.
        providers: execution providers, most wanted first. The CPU stands in for operators
            that another one lacks.

    Raises:
        BundleError: ONNX Runtime does not take it.
        RuntimeUnavailable: a provider did not load.

    """
    available = ort.get_available_providers()
    for name in providers:
        if name not in available:
            raise RuntimeUnavailable(
                f"provider {name!r} is not in this onnxruntime: it has {', '.join(available)}"
            )
    try:
        inference = ort.InferenceSession(
            os.fspath(file), _options(threads), list(providers), enable_fallback=0
        )
    except Exception as error:  # ONNX Runtime's own errors share no public base
        reason = str(error).strip().splitlines()[0]
        raise BundleError(f"{file}: ONNX Runtime cannot load it: {reason}") from error
    missing = [name for name in providers if name not in inference.get_providers()]
    if missing:
        raise RuntimeUnavailable(f"{missing[0]} did not load: its libraries or device are missing")
    return inference


def _options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised
    # Every pass has another total length: a pattern for each is memory that never comes back.
    options.enable_mem_pattern = False
    # A pool that never spins is no faster than one thread (waking costs more than a small
    # product takes); one that spins for long steals the core from the other model's pool.
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
    return options


def default_threads(weight_bytes: int) -> int:
    """One thread per core this process may use, but none for a share that is not worth it."""
    return max(1, min(available_cores(), weight_bytes // _BYTES_PER_THREAD))
