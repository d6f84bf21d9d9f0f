"""Granite 4, dense: Granite 3's layers with a fused MLP, with or without positions (NoPE)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import UnsupportedArchitecture
from edgedec.models import granite
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource, slices

GGUF = ("granite",)

_MLP = "model.layers.{layer}.shared_mlp."


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    c.refuse("num_local_experts", "edgedec reads Granite 4 without experts: take a dense one")
    kinds = config.get("layer_types")
    if kinds != ["attention"] * c.positive("num_hidden_layers"):
        raise UnsupportedArchitecture(
            "config.json: layer_types has layers of Mamba: edgedec reads Granite 4 with attention"
            " only, such as granite-4.0-micro"
        )
    found = granite.spec({**config, "intermediate_size": c.positive("shared_intermediate_size")})
    sources = {
        **slices(_MLP + "input_linear.weight", {"gate": found.ffn, "up": found.ffn}),
        "down": TensorSource(_MLP + "output_linear.weight"),
    }
    turns = config.get("position_embedding_type") == "rope"
    ropes = found.ropes if turns else (None,) * found.layers
    return dataclasses.replace(found, sources=sources, ropes=ropes)
