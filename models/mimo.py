"""MiMo-7B: Qwen2, whose query, key and value have biases if its configuration says so.

Its checkpoints also hold a layer that predicts a token further on, which is a head of its own here
(``models/heads/mimo_mtp.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.qwen2 import windows

GGUF = ("qwen2", "llama", "granite_swa")


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    return c.decoder(qkv_bias=c.flag("attention_bias", default=True), windows=windows(c))
