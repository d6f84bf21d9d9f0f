"""ERNIE 4.5, dense: Llama that rotates neighbouring channels of a head."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import CANONICAL, TensorSource

GGUF = ("ernie4_5",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"rope_theta": 500_000.0, "head_dim": 128, "tie_word_embeddings": True, **config})
    biased = c.flag("use_bias")
    found = c.decoder(norm=c.norm(default=1e-5), qkv_bias=biased, out_bias=biased, mlp_bias=biased)
    turned = ("q", "k", "q_bias", "k_bias")
    sources = {role: TensorSource(CANONICAL[role], pairs=found.head_dim) for role in turned}
    return dataclasses.replace(found, sources=sources)
