"""Emits a decoder as a CoreML package, without coremltools."""

from edgedec.export.coreml.emitter import FOLDER, Emitter, write_program
from edgedec.export.coreml.options import FORMS, ROWS, ProgramOptions, parse_rows

__all__ = [
    "FOLDER",
    "FORMS",
    "ROWS",
    "Emitter",
    "ProgramOptions",
    "parse_rows",
    "write_program",
]
