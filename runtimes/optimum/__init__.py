"""Decoders as optimum-onnx exports them: keys and values go in and come out in every pass."""
