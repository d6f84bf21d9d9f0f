"""MiniCPM: Llama with factors on embeddings, residual branches and logits (2404.06395)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Scales

GGUF = ("minicpm",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"tie_word_embeddings": True, **config})
    c.refuse("num_experts")
    c.refuse("sparse_config", "edgedec does not compute its sparse attention")
    hidden = c.positive("hidden_size")
    biased = c.flag("attention_bias")
    return c.decoder(
        qkv_bias=biased,
        out_bias=biased,
        scales=Scales(
            embed=c.factor("scale_emb", 1.0),
            residual=c.factor("scale_depth", 1.0) / c.positive("num_hidden_layers") ** 0.5,
            logits=c.positive("dim_model_base", 1) / hidden,
        ),
    )
