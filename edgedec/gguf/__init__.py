"""A GGUF file as it was downloaded: its header and its tokenizer."""

from edgedec.gguf.describe import describe
from edgedec.gguf.header import GgufHeader, TensorInfo
from edgedec.gguf.tokenizer import load_tokenizer

__all__ = ["GgufHeader", "TensorInfo", "describe", "load_tokenizer"]
