"""Llama 1 to 3.2, and everything that was published as `LlamaForCausalLM`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec

GGUF = ("llama",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    biased = c.flag("attention_bias")
    return c.decoder(qkv_bias=biased, out_bias=biased, mlp_bias=c.flag("mlp_bias"))
