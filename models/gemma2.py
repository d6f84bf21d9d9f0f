"""Gemma 2: norms before and after, soft caps, and a sliding window in every second layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import CANONICAL, TensorSource
from edgedec.models.traits import Scales

GGUF = ("gemma2",)

_LAYER = "model.layers.{layer}."
_STORED = {
    "final_norm": CANONICAL["final_norm"],
    "attention_norm": CANONICAL["attention_norm"],
    "attention_post_norm": _LAYER + "post_attention_layernorm.weight",
    "mlp_norm": _LAYER + "pre_feedforward_layernorm.weight",
    "mlp_post_norm": _LAYER + "post_feedforward_layernorm.weight",
    "q_norm": CANONICAL["q_norm"],
    "k_norm": CANONICAL["k_norm"],
}
_DEFAULTS: Mapping[str, Any] = {
    "head_dim": 256,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
    "max_position_embeddings": 8192,
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    raw = {**_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, **config}
    c = Config(raw)
    layers = c.count("num_hidden_layers")
    sliding = c.kinds([layer % 2 == 0 for layer in range(layers)])
    return c.decoder(windows=windows(c, sliding), **traits(c))


def windows(c: Config, sliding: Sequence[bool]) -> tuple[int, ...]:
    """Return for each layer the tokens that it attends to."""
    return tuple(c.window() if slides else 0 for slides in sliding)


def traits(c: Config) -> dict[str, Any]:
    """Return the traits that all Gemmas from the second on share."""
    c.refuse("use_bidirectional_attention")
    biased = c.flag("attention_bias")
    return {
        "norm": c.norm(placement="pre_post"),
        "activation": c.activation("hidden_activation"),
        "qkv_bias": biased,
        "out_bias": biased,
        "scales": Scales(
            embed=c.positive("hidden_size") ** 0.5,
            attention=c.factor("query_pre_attn_scalar", 256.0) ** -0.5,
            attention_cap=c.factor("attn_logit_softcapping", 0.0),
            logit_cap=c.factor("final_logit_softcapping", 0.0),
        ),
        # Norm weights are stored less 1.
        "sources": {role: TensorSource(name, plus=1.0) for role, name in _STORED.items()},
    }
