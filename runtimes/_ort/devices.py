"""The devices that this ONNX Runtime's execution providers can use."""

from __future__ import annotations

from collections import Counter

import onnxruntime as ort

from edgedec.placement.device import Device
from edgedec.runtimes._ort.opening import CPU

_SUFFIX = "ExecutionProvider"
# Not a device: it sends its work to a service.
_REMOTE = {"AzureExecutionProvider"}
_NPUS = {"QNNExecutionProvider", "VitisAIExecutionProvider", "CoreMLExecutionProvider"}


def find_devices(runtime: str) -> list[Device]:
    """What the adapter ``runtime`` can compute on; the processor first."""
    seen = [device for device in ort.get_ep_devices() if device.ep_name not in _REMOTE]
    found = []
    numbers: Counter[str] = Counter()
    for device in seen:
        kind = str(device.device.type).rpartition(".")[2].lower()
        name = kind
        if kind != "cpu":
            name = f"{_short(device.ep_name)}:{kind}"
            numbers[name] += 1
            name = f"{name}{numbers[name] - 1}"
        vendor = device.device.vendor or device.ep_vendor
        text = f"{kind.upper()} by {vendor} (onnxruntime {ort.__version__})"
        found.append(Device(runtime, name, kind, text, device.ep_name))
    listed = {device.ep_name for device in seen} | _REMOTE
    for provider in ort.get_available_providers():
        if provider not in listed:
            kind = "npu" if provider in _NPUS else "gpu"
            text = f"the provider's own choice (onnxruntime {ort.__version__})"
            found.append(Device(runtime, _short(provider), kind, text, provider))
    return sorted(found, key=lambda device: device.provider != CPU)


def _short(provider: str) -> str:
    return provider.removesuffix(_SUFFIX).lower()
