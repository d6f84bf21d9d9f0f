"""Decoders on ONNX Runtime: the KV cache in place, trees by bias and positions."""

from edgedec.runtimes.onnx.model import OnnxModel, devices
from edgedec.runtimes.onnx.session import OnnxSession

load = OnnxModel.load

__all__ = ["OnnxModel", "OnnxSession", "devices", "load"]
