"""Exports a checkpoint to a bundle: readers, quantisation, emitters, parity."""

from __future__ import annotations

from pathlib import Path

from edgedec._support.options import check_values
from edgedec.export.needed import explained_imports
from edgedec.export.options import ExportOptions, ExportReport, ModelReport, Progress

__all__ = [
    "ExportOptions",
    "ExportReport",
    "ModelReport",
    "Progress",
    "export_bundle",
    "reads_back",
    "source_files",
]


def export_bundle(options: ExportOptions, progress: Progress | None = None) -> ExportReport:
    """Write a bundle; ``options.out`` is created only when it is complete.

    Args:
        options: what to export and how.
        progress: called as ``progress(stage, done, total)`` while work goes on.

    Raises:
        InputError: an invalid option, or ``out`` exists.
        ExportError: see its subclasses in ``edgedec.errors``; also when the disk is full.
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    check_values(options)
    with explained_imports():
        if options.layout == "genai":
            from edgedec.export.genai import export as write
        else:
            from edgedec.export.bundling import write_bundle as write
    return write(options, progress or _silent)


def source_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint, or of a GGUF model, that an export depends on, sorted.

    Raises:
        ExportError: the folder is not a checkpoint that can be exported.
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    with explained_imports():
        from edgedec.export import tokenizer
        from edgedec.export.source import open_source
    checkpoint = open_source(folder)
    tokenizer.check(checkpoint.texts)  # before the weights are hashed, which takes minutes
    if checkpoint.texts != folder:  # everything is in the files of the weights
        return checkpoint.files
    names = {"config.json", "generation_config.json", *tokenizer.FILES, *checkpoint.tensors.files}
    return [folder / name for name in sorted(names) if (folder / name).is_file()]


def reads_back(architecture: str) -> bool:
    """Return whether a GGUF file of this architecture can be the source of an export."""
    with explained_imports():
        from edgedec.export.gguf.known import known_as
    return known_as(architecture) is not None


def _silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""
