"""Granite 3: Llama with four constant factors (from maximal update parametrisation)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Scales

GGUF = ("granite",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    biased = c.flag("attention_bias")
    return c.decoder(
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=c.flag("mlp_bias"),
        scales=Scales(
            embed=c.factor("embedding_multiplier", 1.0),
            attention=c.factor("attention_multiplier", 1.0),
            residual=c.factor("residual_multiplier", 1.0),
            logits=1 / c.factor("logits_scaling", 1.0),
        ),
    )
