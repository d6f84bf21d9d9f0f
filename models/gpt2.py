"""GPT-2: learned positions, LayerNorm, an MLP without a gate, matrices stored as [in, out]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import TensorSource, slices
from edgedec.models.traits import Scales

GGUF = ("gpt2",)

# GPT-2's names of fields that others share.
_FIELDS = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}
_DEFAULTS = {"activation_function": "gelu_new", "tie_word_embeddings": True}
_LAYER = "transformer.h.{layer}."
_PLAIN = {
    "embed": "transformer.wte.weight",
    "positions": "transformer.wpe.weight",
    "final_norm": "transformer.ln_f.weight",
    "final_norm_bias": "transformer.ln_f.bias",
    "attention_norm": _LAYER + "ln_1.weight",
    "attention_norm_bias": _LAYER + "ln_1.bias",
    "mlp_norm": _LAYER + "ln_2.weight",
    "mlp_norm_bias": _LAYER + "ln_2.bias",
    "o_bias": _LAYER + "attn.c_proj.bias",
    "up_bias": _LAYER + "mlp.c_fc.bias",
    "down_bias": _LAYER + "mlp.c_proj.bias",
}
_TURNED = {
    "o": _LAYER + "attn.c_proj.weight",
    "up": _LAYER + "mlp.c_fc.weight",
    "down": _LAYER + "mlp.c_proj.weight",
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    renamed = {ours: config[theirs] for ours, theirs in _FIELDS.items() if theirs in config}
    c = Config({**_DEFAULTS, **config, **renamed})
    wider = 4 * c.positive("hidden_size")
    c = Config({**c.raw, "intermediate_size": c.positive("intermediate_size", wider)})
    c.refuse("scale_attn_by_inverse_layer_idx")
    c.refuse("add_cross_attention")
    hidden, layers = c.positive("hidden_size"), c.positive("num_hidden_layers")
    return c.decoder(
        norm=c.norm("layer_norm_epsilon", 1e-5, kind="layer", bias=True),
        ropes=(None,) * layers,
        rotary_dim=0,
        position_rows=c.positive("max_position_embeddings"),
        activation=c.activation("activation_function"),
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        scales=Scales(attention=None if c.flag("scale_attn_weights", True) else 1.0),
        sources=_sources(hidden),
        prefixes=("transformer.", ""),
    )


def _sources(hidden: int) -> dict[str, TensorSource]:
    weights = dict.fromkeys("qkv", hidden)
    biases = {f"{role}_bias": hidden for role in "qkv"}
    return {
        **{role: TensorSource(name) for role, name in _PLAIN.items()},
        **{role: TensorSource(name, transposed=True) for role, name in _TURNED.items()},
        **slices(_LAYER + "attn.c_attn.weight", weights, transposed=True),
        **slices(_LAYER + "attn.c_attn.bias", biases),
    }
