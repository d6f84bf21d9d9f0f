"""LFM2: short convolutions in attention's place in most layers, attention in the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import ShortConv, mixers
from edgedec.models.rope import read_rope
from edgedec.models.sources import TensorSource

GGUF = ("lfm2",)

_AT = "model.layers.{layer}."
_NAMES = {
    "final_norm": "model.embedding_norm.weight",
    "attention_norm": _AT + "operator_norm.weight",
    "mlp_norm": _AT + "ffn_norm.weight",
    "o": _AT + "self_attn.out_proj.weight",
    "q_norm": _AT + "self_attn.q_layernorm.weight",
    "k_norm": _AT + "self_attn.k_layernorm.weight",
    "gate": _AT + "feed_forward.w1.weight",
    "up": _AT + "feed_forward.w3.weight",
    "down": _AT + "feed_forward.w2.weight",
}
# As its authors' own checkpoints call them.
_OTHERS = {"theta": "rope_theta", "tie_embedding": "tie_word_embeddings",
           "block_ff_dim": "intermediate_size"}  # fmt: skip


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    own = {name: config[other] for other, name in _OTHERS.items() if config.get(other) is not None}
    raw = {"tie_word_embeddings": True, "max_position_embeddings": 128_000, **config, **own}
    c = Config(raw)
    c.refuse("conv_bias", "edgedec reads LFM2 without biases")
    c = Config({**raw, "intermediate_size": _ffn(c)})
    listed, layers = c.raw.get("full_attn_idxs"), c.positive("num_hidden_layers")
    default = [not isinstance(listed, list) or layer in listed for layer in range(layers)]
    attends = c.kinds(default, ("conv", "full_attention"))
    dim, taps = c.rotary_dim(1.0), c.taps("conv_L_cache", 3)
    rope, conv = read_rope(raw, 1_000_000.0, dim), ShortConv(taps)
    return c.decoder(
        norm=c.norm("norm_eps", 1e-5),
        qk_norm="head",
        ropes=tuple(rope if attention else None for attention in attends),
        rotary_dim=dim,
        mixers=mixers(None if attention else conv for attention in attends),
        sources={role: TensorSource(name) for role, name in _NAMES.items()},
    )


def _ffn(c: Config) -> int:
    """Return the channels of the MLP, which the stated ones are made from."""
    stated = c.positive("intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim", default=True):
        return stated
    found = int(2 * stated / 3)
    if c.raw.get("block_ffn_dim_multiplier", 1.0) is not None:
        multiple = c.positive("block_multiple_of", 256)
        found = -(-int(c.factor("block_ffn_dim_multiplier", 1.0) * found) // multiple) * multiple
    return found
