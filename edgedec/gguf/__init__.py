"""A GGUF file as it was downloaded: its header, its tokenizer, and a first look in a child."""

from edgedec.gguf.check import first_open
from edgedec.gguf.describe import describe
from edgedec.gguf.header import GgufHeader, TensorInfo
from edgedec.gguf.tokenizer import load_tokenizer

__all__ = ["GgufHeader", "TensorInfo", "describe", "first_open", "load_tokenizer"]
