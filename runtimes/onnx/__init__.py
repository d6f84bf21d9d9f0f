"""Decoders on ONNX Runtime: KV cache in place, trees by attention bias and positions."""

from edgedec.records.adapter import AdapterInfo, LoadOption
from edgedec.runtimes import _ort

INFO = AdapterInfo(
    name="onnx",
    module=f"{__name__}.adapter",
    formats=("onnx",),
    order=1,
    packages=(*_ort.PACKAGES, "openvino"),
    providers=True,
    # OpenVINO starts a pass too slowly for a model of a few megabytes.
    target_places=("openvino", "OpenVINO"),
    options=(
        LoadOption(
            "weight_memory", int, "most of the target's weights in memory at once; the rest is read"
            " from the disk in every pass (Linux). Default: all of them.",
            least=1, in_bytes=True, target_only=True, planned=True, common=True,
        ),
    ),
)  # fmt: skip
