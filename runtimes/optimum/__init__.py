"""Decoders exported by optimum-onnx: keys and values go in and come out in every pass.

This supports any architecture that optimum knows, at a price: a pass copies the whole cache, and
there are no branching trees.
"""

from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import _ort

INFO = AdapterInfo(
    name="optimum",
    module=f"{__name__}.adapter",
    formats=("optimum",),
    order=3,
    packages=_ort.PACKAGES,
    providers=True,
)
