"""OLMoE: a mixture of many small MLPs in each layer, norms over all of query and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import experts

GGUF = ("olmoe",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    c.refuse("clip_qkv", "edgedec does not clip queries and keys")
    biased, mixture = c.flag("attention_bias"), c.experts()
    return c.decoder(
        norm=c.norm(default=1e-5),
        qk_norm="all",
        qkv_bias=biased,
        out_bias=biased,
        experts=mixture,
        sources=experts(mixture.count),
    )
