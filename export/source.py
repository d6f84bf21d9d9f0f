"""Opens what an export reads: a Hugging Face folder, or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgedec._support.model_path import gguf_of
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.needed import explained_imports
from edgedec.models.decoder import DecoderSpec


def open_source(
    path: str | Path, outline: Callable[[Path], DecoderSpec] | None = None
) -> Checkpoint:
    """Read the configuration and the headers of a source; no weights yet.

    Args:
        path: the folder or the file; a folder with nothing but one GGUF file is that file.
        outline: see ``Checkpoint.open``.

    Raises:
        BundleError, CheckpointError, UnsupportedArchitecture: see ``Checkpoint.open`` and
            ``gguf.source.open_file``.
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    if (file := gguf_of(Path(path))) is not None:
        with explained_imports():
            from edgedec.export.gguf.source import open_file
        return open_file(file)
    return Checkpoint.open(path, outline)
