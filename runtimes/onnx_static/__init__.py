"""Decoders as ONNX graphs of static shape and standard operators, as compilers for NPUs need."""

from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import _ort

INFO = AdapterInfo(
    name="onnx-static",
    module=f"{__name__}.adapter",
    formats=("onnx-static",),
    order=5,
    packages=_ort.PACKAGES,
    providers=True,
)
