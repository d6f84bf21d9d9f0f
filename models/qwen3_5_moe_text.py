"""Qwen3.5's sparse mixtures: its layers, with experts and a gated MLP beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models import qwen3_5_text
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource, stacked

GGUF = ("qwen35moe",)

_MLP = "model.layers.{layer}.mlp."


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes; every layer has a mixture."""
    c = Config({"num_experts_per_tok": 8, "norm_topk_prob": True, **config})
    own = {"num_experts": None, "intermediate_size": c.positive("moe_intermediate_size", 512)}
    found = qwen3_5_text.spec({**config, **own})
    experts = dataclasses.replace(
        c.experts(), shared=c.positive("shared_expert_intermediate_size", 512), shared_gated=True
    )
    names = _MLP + "experts.gate_up_proj", _MLP + "experts.down_proj"
    sources = {
        **found.sources,
        **stacked(*names, experts.count, found.ffn),
        "shared_router": TensorSource(_MLP + "shared_expert_gate.weight"),
        **{
            f"shared_{role}": TensorSource(f"{_MLP}shared_expert.{role}_proj.weight")
            for role in ("gate", "up", "down")
        },
    }
    return dataclasses.replace(found, experts=experts, sources=sources)
