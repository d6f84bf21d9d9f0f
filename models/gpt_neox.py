"""GPT-NeoX and Pythia: LayerNorm, parallel attention and MLP, query, key, value by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import read_rope
from edgedec.models.sources import TensorSource

GGUF = ("gptneox",)

_LAYER = "gpt_neox.layers.{layer}."
_STORED = {
    "attention_norm": _LAYER + "input_layernorm",
    "mlp_norm": _LAYER + "post_attention_layernorm",
    "final_norm": "gpt_neox.final_layer_norm",
    "o": _LAYER + "attention.dense",
    "up": _LAYER + "mlp.dense_h_to_4h",
    "down": _LAYER + "mlp.dense_4h_to_h",
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"hidden_act": "gelu", **config})
    biased, layers = c.flag("attention_bias", True), c.positive("num_hidden_layers")
    dim = c.rotary_dim(0.25, "rotary_pct")
    rope = read_rope({**c.raw, "rope_theta": c.factor("rotary_emb_base", 10_000.0)}, 10_000.0, dim)
    parallel = c.flag("use_parallel_residual", True)
    heads = c.positive("num_attention_heads")
    return c.decoder(
        norm=c.norm("layer_norm_eps", 1e-5, kind="layer", bias=True),
        ropes=(rope,) * layers,
        rotary_dim=dim,
        residual="parallel" if parallel else "sequential",
        gated=False,
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=True,
        sources=_sources(c.positive("hidden_size"), heads),
        prefixes=("gpt_neox.", ""),
    )


def _sources(hidden: int, heads: int) -> dict[str, TensorSource]:
    size = hidden // heads
    found = {
        "embed": TensorSource("gpt_neox.embed_in.weight"),
        "head": TensorSource("embed_out.weight"),
    }
    for role, name in _STORED.items():
        found[role] = TensorSource(f"{name}.weight")
        found[f"{role}_bias"] = TensorSource(f"{name}.bias")
    for part, role in enumerate("qkv"):
        for kind in ("weight", "bias"):
            # Head by head: its query, its key, its value.
            found[role if kind == "weight" else f"{role}_bias"] = TensorSource(
                f"{_LAYER}attention.query_key_value.{kind}",
                rows=3 * hidden,
                start=part * size,
                group=size,
                step=3 * size,
            )
    return found
