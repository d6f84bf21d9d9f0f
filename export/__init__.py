"""Exports a checkpoint to a bundle: readers, quantisation, emitters, parity."""

from __future__ import annotations

from edgedec._support import installation
from edgedec.errors import RuntimeUnavailable
from edgedec.export.options import ExportOptions, ExportReport, ModelReport, Progress

__all__ = ["ExportOptions", "ExportReport", "ModelReport", "Progress", "export_bundle"]


def export_bundle(options: ExportOptions, progress: Progress | None = None) -> ExportReport:
    """Write a bundle. It appears at ``options.out`` when it is complete, or not at all.

    Args:
        options: what to export and how.
        progress: called as ``progress(stage, done, total)`` while work goes on.

    Raises:
        InputError: an option that makes no sense, or ``out`` exists.
        ExportError: see its subclasses in ``edgedec.errors``; also when the disk is full.
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    try:
        from edgedec.export.bundling import write_bundle
    except ModuleNotFoundError as error:
        raise RuntimeUnavailable(
            f"exporting needs {error.name}: install it with"
            f" `{installation.install(extra='export')}`"
        ) from None
    return write_bundle(options, progress or _silent)


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody listens."""
