"""Qwen3's sparse mixtures: many small MLPs in each layer, of which a token uses a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import experts

GGUF = ("qwen3moe",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes; every layer has a mixture."""
    c = Config(config)
    c = Config({**config, "intermediate_size": c.positive("moe_intermediate_size")})
    c.refuse("mlp_only_layers", "edgedec needs experts in every layer")
    if c.positive("decoder_sparse_step", 1) != 1:
        raise UnsupportedArchitecture("config.json: only some layers have experts")
    windows: tuple[int, ...] = ()
    if c.flag("use_sliding_window"):
        windows = (c.window(4096),) * c.positive("num_hidden_layers")
    biased, mixture = c.flag("attention_bias"), c.experts()
    return c.decoder(
        qk_norm="head",
        qkv_bias=biased,
        out_bias=biased,
        experts=mixture,
        windows=windows,
        sources=experts(mixture.count),
    )
