"""Ministral 3: Llama with YaRN, for texts of up to its original context.

Behind that, its queries grow with the logarithm of their position (``llama_4_scaling_beta``), which
is not computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec

# Within the original context, behind which its queries grow.
GGUF = ("llama",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"head_dim": 128, **config})
    longest = c.positive("max_position_embeddings", 262_144)
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if isinstance(rope, Mapping) and rope.get("llama_4_scaling_beta"):
        longest = min(longest, Config(rope).positive("original_max_position_embeddings", longest))
    c = Config({**c.raw, "max_position_embeddings": longest})
    layers = c.positive("num_hidden_layers")
    return c.decoder(norm=c.norm(default=1e-5), windows=(c.window(),) * layers)
