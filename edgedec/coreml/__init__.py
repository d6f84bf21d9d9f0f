"""CoreML packages: their messages and weights, read as untrusted input, written, and interpreted.

A ``.mlpackage`` is a folder::

    Manifest.json                                 names the other two
    Data/com.apple.CoreML/model.mlmodel           the program: a protobuf message (``messages``)
    Data/com.apple.CoreML/weights/weight.bin      its constants (``blob``)

Nothing here needs coremltools. ``tests/unit/coreml`` compares coremltools' MIL loader and its own
storage reader with this package.
"""

from edgedec.coreml.package import Package, package_files

__all__ = ["Package", "package_files"]
