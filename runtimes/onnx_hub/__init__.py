"""Decoders that others exported: keys and values go in and come out in every pass.

Graphs of optimum, of transformers.js and of onnxruntime-genai are of this form. They verify chains
only. Where keys and values are read by an attention that can write into them, they stay in place;
else a pass copies the whole cache.
"""

from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import _ort

INFO = AdapterInfo(
    name="onnx-hub",
    module=f"{__name__}.adapter",
    formats=("onnx-hub", "optimum"),
    order=3,
    packages=_ort.PACKAGES,
    providers=True,
)
"""The adapter of the runtime ``onnx-hub``: see ``edgedec.runtimes.registry.Adapter``."""
