"""OLMo 2: norms after attention and MLP, and over all of query and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource

GGUF = ("olmo2",)

_LAYER = "model.layers.{layer}."
SOURCES = {
    "attention_post_norm": TensorSource(_LAYER + "post_attention_layernorm.weight"),
    "mlp_post_norm": TensorSource(_LAYER + "post_feedforward_layernorm.weight"),
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    biased = c.flag("attention_bias")
    return c.decoder(
        norm=c.norm(default=1e-5, placement="post"),
        qk_norm="all",
        qkv_bias=biased,
        out_bias=biased,
        sources=SOURCES,
    )
