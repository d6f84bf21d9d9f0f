"""Qwen3.5 (3.6, 3.8), dense: the gated delta rule in most layers, gated attention in the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet, mixers
from edgedec.models.rope import read_rope
from edgedec.models.sources import TensorSource

GGUF = ("qwen35",)

_AT = "model.layers.{layer}."
_MIXER = _AT + "linear_attn."
_NAMES = {
    "mix_in": _MIXER + "in_proj_qkv.weight",
    "mix_gate": _MIXER + "in_proj_z.weight",
    "mix_step": _MIXER + "in_proj_a.weight",
    "mix_beta": _MIXER + "in_proj_b.weight",
    "conv": _MIXER + "conv1d.weight",
    "step_bias": _MIXER + "dt_bias",
    "mix_norm": _MIXER + "norm.weight",
    "mix_out": _MIXER + "out_proj.weight",
}
# Stored less 1; the norm behind the delta rule is not.
_LESS_ONE = {
    "final_norm": "model.norm.weight",
    "attention_norm": _AT + "input_layernorm.weight",
    "mlp_norm": _AT + "post_attention_layernorm.weight",
    "q_norm": _AT + "self_attn.q_norm.weight",
    "k_norm": _AT + "self_attn.k_norm.weight",
}
# Of a rotation, what says which channels turn with a picture's rows and columns; those of a text
# turn with its position alone.
_OF_PICTURES = ("mrope_section", "mrope_interleaved")


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    rope = config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise CheckpointError(f"config.json: rope_parameters is {rope!r}, expected an object")
    rope = {name: value for name, value in rope.items() if name not in _OF_PICTURES}
    raw = {"head_dim": 256, **config, "rope_parameters": rope}
    c = Config(raw)
    c.refuse("attention_bias", "edgedec reads Qwen3.5 without biases")
    c.refuse("num_experts", "edgedec reads Qwen3.5 without experts: take a dense one")
    every, layers = c.positive("full_attention_interval", 4), c.positive("num_hidden_layers")
    default = [(layer + 1) % every == 0 for layer in range(layers)]
    attends = c.kinds(default, ("linear_attention", "full_attention"))
    kind, dim = _delta(c), c.rotary_dim(0.25)
    turning = read_rope(raw, 10_000.0, dim)
    return c.decoder(
        qk_norm="head",
        ropes=tuple(turning if attention else None for attention in attends),
        rotary_dim=dim,
        gated_attention=c.flag("attn_output_gate", default=True),
        mixers=mixers(None if attention else kind for attention in attends),
        sources=_sources(c, c.positive("head_dim")),
        prefixes=("model.", "model.language_model.", "language_model.model."),
    )


def _sources(c: Config, head: int) -> dict[str, TensorSource]:
    found = {role: TensorSource(name) for role, name in _NAMES.items()}
    found |= {role: TensorSource(name, plus=1.0) for role, name in _LESS_ONE.items()}
    found["decay"] = TensorSource(_MIXER + "A_log", log=True)
    if c.flag("attn_output_gate", default=True):
        # Each head has its query's rows, then its gate's.
        rows = 2 * head * c.positive("num_attention_heads")
        query = TensorSource(_AT + "self_attn.q_proj.weight", rows=rows, group=head, step=2 * head)
        found |= {"q": query, "attention_gate": dataclasses.replace(query, start=head)}
    return found


def _delta(c: Config) -> DeltaNet:
    kind = DeltaNet(
        key_heads=c.positive("linear_num_key_heads", 16),
        value_heads=c.positive("linear_num_value_heads", 32),
        key_dim=c.positive("linear_key_head_dim", 128),
        value_dim=c.positive("linear_value_head_dim", 128),
        taps=c.taps("linear_conv_kernel_dim", 4),
    )
    if kind.value_heads % kind.key_heads:
        raise CheckpointError(
            f"config.json: {kind.value_heads} linear value heads cannot share {kind.key_heads} keys"
        )
    return kind
