"""Gemma 4, text: layers of two kinds with heads of their own sizes, some without keys and values.

The last ``num_kv_shared_layers`` read the keys and values of the last layer of their kind before
them. In the small models every layer has an input of its own besides the residual stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models import gemma2
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope, read_rope
from edgedec.models.sources import CANONICAL, TensorSource
from edgedec.models.traits import LayerSizes, Scales

GGUF = ("gemma4",)

_AT = "model.layers.{layer}."
_NAMES = {
    "attention_post_norm": _AT + "post_attention_layernorm.weight",
    "mlp_norm": _AT + "pre_feedforward_layernorm.weight",
    "mlp_post_norm": _AT + "post_feedforward_layernorm.weight",
}
# Defaults of fields that a config.json may omit.
_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 512,
    "max_position_embeddings": 131_072,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144,
}
_ROPES: Mapping[str, Mapping[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1_000_000.0,
    },
}
# Fields of a layer's own that ``per_layer_config`` may state.
_OWN = {"head_dim": "head_dim", "num_key_value_heads": "kv_heads"}
_EVERY = 6


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({**_DEFAULTS, **config})
    c.refuse("enable_moe_block", "edgedec computes Gemma 4 without mixtures of experts")
    if c.raw.get("use_bidirectional_attention") not in (None, "vision"):  # between images' tokens
        c.refuse("use_bidirectional_attention")
    layers = c.positive("num_hidden_layers")
    sliding = list(c.kinds([(layer + 1) % _EVERY != 0 for layer in range(layers)]))
    if len(sliding) != layers:
        raise CheckpointError(f"config.json: {len(sliding)} layer_types for {layers} layers")
    sliding[-1] = False  # always, whatever the file says
    sizes, biased = _sizes(c, sliding), c.flag("attention_bias")
    own = c.count("hidden_size_per_layer_input")
    if own and c.positive("vocab_size_per_layer_input") != c.positive("vocab_size"):
        raise UnsupportedArchitecture(
            "config.json: vocab_size_per_layer_input is not vocab_size, and edgedec reads tables of"
            " all tokens only"
        )
    return c.decoder(
        windows=gemma2.windows(c, sliding),
        ropes=_ropes(c, sliding),
        rotary_dim=c.positive("head_dim"),
        sizes=sizes,
        per_layer_inputs=own,
        factors=True,
        norm=c.norm(placement="pre_post", values=True),
        activation=c.activation("hidden_activation"),
        qk_norm="head",
        qkv_bias=biased,
        out_bias=biased,
        scales=Scales(
            embed=c.positive("hidden_size") ** 0.5,
            attention=1.0,
            logit_cap=c.factor("final_logit_softcapping", 0.0),
        ),
        sources={role: TensorSource(name) for role, name in _NAMES.items()}
        | {"attention_norm": TensorSource(CANONICAL["attention_norm"])},
    )


def _ropes(c: Config, sliding: Sequence[bool]) -> tuple[Rope, ...]:
    """Return each layer's rotary embedding, by its kind."""
    stated = c.raw.get("rope_parameters") or _ROPES
    if not isinstance(stated, Mapping):
        raise CheckpointError(f"config.json: rope_parameters is {stated!r}, expected an object")
    found = {}
    for kind, usual in _ROPES.items():
        numbers = stated.get(kind) or usual
        if isinstance(numbers, Mapping) and numbers.get("rope_type") == "proportional":
            numbers = {"partial_rotary_factor": 1.0, **numbers}
        found[kind] = read_rope({"rope_parameters": numbers}, 10_000.0, c.positive("head_dim"))
    near, whole = found["sliding_attention"], found["full_attention"]
    return tuple(near if slides else whole for slides in sliding)


def _sizes(c: Config, sliding: Sequence[bool]) -> tuple[LayerSizes, ...]:
    """Return each layer's sizes, and the layer whose keys and values it reads."""
    first = len(sliding) - c.count("num_kv_shared_layers", 0)
    if first < 1:
        raise UnsupportedArchitecture(
            "config.json: all layers read the keys and values of another model: this is a head, or"
            " its num_kv_shared_layers is wrong"
        )
    found: list[LayerSizes] = []
    lenders = {slides: layer for layer, slides in enumerate(sliding[:first])}  # the last of a kind
    for layer, slides in enumerate(sliding):
        lender = None if layer < first else lenders.get(slides)
        if layer >= first and lender is None:
            raise CheckpointError(f"config.json: no layer of its kind has keys for layer {layer}")
        dim, kv_heads = _heads(c, layer, slides)
        wide = lender is not None and c.flag("use_double_wide_mlp")
        own = LayerSizes(
            kv_heads, dim, dim, c.positive("intermediate_size") * (2 if wide else 1), lender,
            keys_only=lender is None and not slides and c.flag("attention_k_eq_v"),
        )  # fmt: skip
        if lender is not None:
            lent = found[lender]
            if (lent.kv_heads, lent.head_dim) != (kv_heads, dim):
                raise CheckpointError(
                    f"config.json: layer {layer} cannot read the keys of layer {lender}: its heads"
                    " have other sizes"
                )
        if c.positive("num_attention_heads") % kv_heads or dim % 2:
            raise CheckpointError(
                f"config.json: {kv_heads} key heads of {dim} channels in layer {layer}, expected"
                " an even number of channels and a divisor of num_attention_heads"
            )
        found.append(own)
    return tuple(found)


def _heads(c: Config, layer: int, slides: bool) -> tuple[int, int]:
    """Return the channels of a layer's heads, and its number of key heads."""
    dim, kv_heads = c.positive("head_dim"), c.positive("num_key_value_heads")
    by_layer = c.raw.get("per_layer_config")
    if by_layer is not None:
        if not isinstance(by_layer, Mapping):
            raise CheckpointError("config.json: per_layer_config is not an object")
        stated = by_layer.get(str(layer)) or {}
        if not isinstance(stated, Mapping) or set(stated) - set(_OWN):
            known = " and ".join(_OWN)
            raise UnsupportedArchitecture(
                f"config.json: per_layer_config of layer {layer} is {stated!r}, expected {known}"
            )
        own = Config(stated)
        return own.positive("head_dim", dim), own.positive("num_key_value_heads", kv_heads)
    if slides:
        return dim, kv_heads
    if c.flag("attention_k_eq_v"):
        kv_heads = c.positive("num_global_key_value_heads", kv_heads)
    return c.positive("global_head_dim", dim), kv_heads
