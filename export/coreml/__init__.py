"""Emits a decoder as a CoreML package, without coremltools."""

from edgedec.export.coreml.emitter import FOLDER, Emitter, write_program
from edgedec.export.coreml.options import FORMS, ProgramOptions

__all__ = [
    "FOLDER",
    "FORMS",
    "Emitter",
    "ProgramOptions",
    "write_program",
]
