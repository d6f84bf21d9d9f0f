"""Hunyuan, dense: Llama with norms on each head's query and key, after the rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource

GGUF = ("hunyuan-dense",)

_LAYER = "model.layers.{layer}.self_attn."
_SOURCES = {
    "q_norm": TensorSource(_LAYER + "query_layernorm.weight"),
    "k_norm": TensorSource(_LAYER + "key_layernorm.weight"),
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({**config, **_rope(config)})
    biased = c.flag("attention_bias")
    return c.decoder(
        norm=c.norm(default=1e-5),
        qk_norm="rotated",
        qkv_bias=biased,
        out_bias=biased,
        sources=_SOURCES,
    )


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base that a scaling of type "dynamic" with ``alpha`` stands for.

    It is fixed: ``theta * alpha ** (d / (d - 2))``, d the channels of a head.
    """
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or not scaling.get("alpha"):
        return {}
    c = Config(config)
    dim, own = c.rotary_dim(1.0), Config(scaling)
    theta = own.factor("rope_theta", c.factor("rope_theta", 10_000.0))
    if scaling.get("type", scaling.get("rope_type")) != "dynamic" or dim <= 2:
        raise UnsupportedArchitecture("config.json: rope_scaling has alpha and is not dynamic")
    turned = theta * own.factor("alpha", 1.0) ** (dim / (dim - 2))
    return {"rope_scaling": None, "rope_parameters": None, "rope_theta": turned}
