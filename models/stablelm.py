"""StableLM: LayerNorm, a quarter of each head rotated, parallel attention and MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource

GGUF = ("stablelm",)

_ATTENTION = "model.layers.{layer}.self_attn."


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    heads = c.positive("num_attention_heads")
    counts = {"q": heads, "k": c.positive("num_key_value_heads", heads)}
    # Each head's norm is a tensor of its own.
    norms = {
        f"{role}_norm": TensorSource(
            _ATTENTION + f"{role}_layernorm.norms.{{part}}.weight", parts=count
        )
        for role, count in counts.items()
    }
    return c.decoder(
        norm=c.norm("layer_norm_eps", 1e-5, kind="layer", bias=True),
        rotary_dim=c.rotary_dim(0.25),
        residual="shared" if c.flag("use_parallel_residual") else "sequential",
        qkv_bias=c.flag("use_qkv_bias"),
        qk_norm="heads" if c.flag("qk_layernorm") else "",
        sources=norms,
    )
