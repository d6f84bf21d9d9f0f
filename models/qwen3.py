"""Qwen3 (dense): an RMS norm on each head's query and key, no bias on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.qwen2 import windows

GGUF = ("qwen3",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes; heads have 128 channels by default."""
    c = Config({"head_dim": 128, **config})
    biased = c.flag("attention_bias")
    return c.decoder(qk_norm="head", qkv_bias=biased, out_bias=biased, windows=windows(c))
