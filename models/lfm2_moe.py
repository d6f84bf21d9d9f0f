"""LFM2's sparse mixtures: LFM2 with experts in place of the MLP in all but the first layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models import lfm2
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource

GGUF = ("lfm2moe",)

_MLP = "model.layers.{layer}.feed_forward."


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"norm_topk_prob": True, **config})
    experts = c.experts()
    if not experts.renormalised or c.factor("routed_scaling_factor", 1.0) != 1:
        raise UnsupportedArchitecture(
            "config.json: edgedec reads LFM2's experts with shares that add up to 1"
        )
    if not c.flag("use_expert_bias", default=True):
        raise UnsupportedArchitecture("config.json: edgedec reads LFM2's experts with their bias")
    layers, dense = c.positive("num_hidden_layers"), c.count("num_dense_layers", 2)
    if dense >= layers:
        raise CheckpointError(f"config.json: {dense} of {layers} layers are without experts")
    size = c.positive("moe_intermediate_size")
    own = {"intermediate_size": size, "block_ff_dim": None, "block_auto_adjust_ff_dim": False}
    found = lfm2.spec({**config, **own})
    experts = dataclasses.replace(
        experts, sigmoid=True, dense_layers=dense, dense_ffn=c.positive("intermediate_size")
    )
    sources = {
        **found.sources,
        "router": TensorSource(_MLP + "gate.weight"),
        "probs_bias": TensorSource(_MLP + "expert_bias"),
        **{
            f"experts_{role}": TensorSource(
                f"{_MLP}experts.{{part}}.{stored}.weight", parts=experts.count
            )
            for role, stored in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
        },
    }
    return dataclasses.replace(found, experts=experts, sources=sources)
