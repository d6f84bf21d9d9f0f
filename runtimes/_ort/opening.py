"""Opens a checked graph: threads, providers, session options."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnxruntime as ort

from edgedec._support.files import check_regular
from edgedec._support.model_path import utf8
from edgedec.bundle.onnx_file import ModelFile
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.hardware.device import available_cores
from edgedec.runtimes._ort.devices import CPU, OrtDevice, choose, put_into
from edgedec.runtimes._ort.saved import locations

_SPIN_US = 100
# Read by ONNX Runtime when it makes an attention kernel.
_NO_TILES = "ORT_GQA_DISABLE_FLASH_ATTENTION"
_making = threading.RLock()
_BYTES_PER_THREAD = 1_500_000


def model_file(path: Path | str, name: str) -> Path:
    """Return the graph's file, given that or its folder."""
    file = Path(path)
    return file / name if file.is_dir() else file


@contextmanager
def attention_by_rows(*, wanted: bool = True) -> Iterator[None]:
    """Have graphs that are opened meanwhile compute attention without tiles of the keys.

    Tiles begin at other keys in passes of other numbers of rows, so that at some lengths of the
    text, behind 560 and 700 tokens of Gemma 3 270M for instance, a row's bits depend on its pass.
    Without them a prompt takes 0.97 times as long, and a padded row 0.96 times behind 1,000 tokens
    and 0.8 times behind 3,000, but a lone row that is not padded 1.05 and 1.13 times (135M in int8
    on an EPYC). What the user has set in the environment is left.
    """
    if not wanted or _NO_TILES in os.environ:
        yield
        return
    with _making:
        os.environ[_NO_TILES] = "1"
        try:
            yield
        finally:
            os.environ.pop(_NO_TILES, None)


def open_inference(
    file: Path,
    stored: ModelFile,
    threads: int,
    providers: Sequence[str] = (),
    device: str | None = None,
    without: Sequence[str] = (),
) -> ort.InferenceSession:
    """Load a graph. Its external data must have been checked: see ``edgedec.bundle.onnx_file``.

    Args:
        stored: its contents, from ``read_model_file``.
        providers: execution providers in order of preference. The CPU runs operators that another
            one lacks.
        device: a name from ``devices.find_devices``; None is the provider's default.
        without: graph optimizations to disable, by ONNX Runtime's names.

    Raises:
        BundleError: ONNX Runtime refuses the graph.
        RuntimeUnavailable: a provider or device is not available, or failed to load the graph.

    """
    chosen = choose(device, providers)
    try:
        path = utf8(file)
    except UnicodeDecodeError:
        raise BundleError(f"{file}: ONNX Runtime opens paths in UTF-8 only: rename it") from None
    try:
        files = [file.parent / name for name in locations(stored)]
        check_regular(files)
        return open_session(path, session_options(threads), chosen, threads, without)
    except OSError as error:
        raise BundleError(f"{file}: its weights cannot be read: {error}") from None
    except SessionFailed as error:
        if all(offer.provider == CPU for offer in chosen):
            raise BundleError(f"{file}: ONNX Runtime cannot load it: {error}") from error
        names = ", ".join(offer.label for offer in chosen)
        raise RuntimeUnavailable(f"{file}: {names} cannot load it: {error}") from error


class SessionFailed(Exception):
    """ONNX Runtime's reason, in one line."""


def open_session(
    model: str | bytes,
    options: ort.SessionOptions,
    chosen: Sequence[OrtDevice],
    threads: int,
    without: Sequence[str] = (),
) -> ort.InferenceSession:
    """Return a session on the chosen devices; the CPU runs operators that these lack.

    Args:
        model: path of an ONNX file, or its bytes.
        chosen: devices in order of preference.
        without: graph optimizations to disable.

    Raises:
        SessionFailed: it cannot be created.
        RuntimeUnavailable: a provider did not load.

    """
    names = put_into(options, chosen, threads)
    try:
        # Providers in the options are only used if none is named here.
        inference = ort.InferenceSession(
            model, options, names or None, enable_fallback=0, disabled_optimizers=list(without)
        )
    except Exception as error:  # ONNX Runtime's own errors share no public base
        raise SessionFailed(one_line(error)) from error
    missing = [o.provider for o in chosen if o.provider not in inference.get_providers()]
    if missing:
        raise RuntimeUnavailable(f"{missing[0]} did not load: its libraries or device are missing")
    return inference


def one_line(error: Exception) -> str:
    """Return an ONNX Runtime error without its source location, which users do not need."""
    words = (str(error).strip() or type(error).__name__).splitlines()[0]
    return words.rpartition(" : FAIL : ")[2] if words.startswith("/") else words


def session_options(threads: int) -> ort.SessionOptions:
    """Return the options that all sessions share."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised
    # Otherwise the file's name decides, and ONNX Runtime's own format was not checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # Every pass has another total length, and a memory pattern kept for each would leak.
    options.enable_mem_pattern = False
    # A pool that never spins is no faster than one thread (waking costs more than a small product
    # takes); one that spins for long takes the core from the other model's pool.
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
    return options


def default_threads(weight_bytes: int) -> int:
    """Return one thread per core this process may use, fewer if a thread's share is too small."""
    return max(1, min(available_cores(), weight_bytes // _BYTES_PER_THREAD))
