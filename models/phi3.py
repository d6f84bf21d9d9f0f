"""Phi-3, Phi-3.5 and Phi-4-mini: Llama with fused projections, longrope, partial rotation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import slices

GGUF = ("phi3",)

_LAYER = "model.layers.{layer}."


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({**config, **_rope(config)})
    for biased in ("attention_bias", "mlp_bias", "lm_head_bias"):
        c.refuse(biased)
    found = c.decoder(
        rotary_dim=c.rotary_dim(1.0),
        norm=c.norm(default=1e-5),
        windows=(c.window(),) * c.count("num_hidden_layers"),
    )
    qkv = {"q": found.q_size, "k": found.kv_size, "v": found.kv_size}
    halves = {"gate": found.ffn, "up": found.ffn}
    sources = {
        **slices(_LAYER + "self_attn.qkv_proj.weight", qkv),
        **slices(_LAYER + "mlp.gate_up_proj.weight", halves),
    }
    return dataclasses.replace(found, sources=sources)


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the longrope scaling under its current name, and the original training context."""
    scaling = config.get("rope_scaling")
    if not isinstance(scaling, Mapping):
        return {}
    name = "original_max_position_embeddings"
    if scaling.get("type") in ("su", "yarn"):
        scaling = {**scaling, "type": "longrope"}
    return {"rope_scaling": scaling, name: config.get(name) or scaling.get(name) or 4096}
