"""Decoders in CoreML: programs of fixed widths, over a cache of fixed size.

On macOS coremltools computes; elsewhere an interpreter of the saved file does, for checks. No Mac
was at hand when this was written: see docs/coreml.md.
"""

from edgedec.records.adapter import AdapterInfo

INFO = AdapterInfo(
    name="coreml",
    module=f"{__name__}.adapter",
    formats=("coreml",),
    order=4,
    packages=("coremltools",),
    extra="coreml",
    purpose="decodes CoreML bundles on macOS; elsewhere it checks them",
    processor=False,
)
