"""Reads a downloaded GGUF file: its header and its tokenizer."""

from edgedec.gguf.describe import describe
from edgedec.gguf.header import GgufHeader, TensorInfo
from edgedec.gguf.tokenizer import load_tokenizer

__all__ = ["GgufHeader", "TensorInfo", "describe", "load_tokenizer"]
