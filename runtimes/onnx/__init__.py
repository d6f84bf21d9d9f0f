"""Decoders on ONNX Runtime: KV cache in place, trees by attention bias and positions."""

from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import _ort

INFO = AdapterInfo(
    name="onnx",
    module=f"{__name__}.adapter",
    formats=("onnx",),
    order=1,
    packages=_ort.PACKAGES,
    providers=True,
)
