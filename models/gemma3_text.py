"""Gemma 3, text: norms of query and key, and two rotary embeddings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models import gemma2
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope, read_rope

GGUF = ("gemma3",)

# Defaults of fields that a config.json may omit (the published ones of Gemma 3 omit many).
_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({**_DEFAULTS, **config})
    layers = c.positive("num_hidden_layers")
    every = c.positive("sliding_window_pattern", 6)
    sliding = c.kinds([(layer + 1) % every != 0 for layer in range(layers)])
    near, whole = _ropes(c)
    return c.decoder(
        windows=gemma2.windows(c, sliding),
        ropes=tuple(near if slides else whole for slides in sliding),
        rotary_dim=c.positive("head_dim"),
        qk_norm="head",
        **gemma2.traits(c),
    )


def _ropes(c: Config) -> tuple[Rope, Rope]:
    """Return the rotary embeddings of windowed and of full layers.

    Only the latter were stretched to long texts.
    """
    dim, by_kind = c.positive("head_dim"), c.raw.get("rope_parameters")
    if isinstance(by_kind, Mapping) and "full_attention" in by_kind:  # as transformers 5 writes it
        near, whole = (
            {"rope_parameters": by_kind.get(kind)}
            for kind in ("sliding_attention", "full_attention")
        )
    else:
        near = {"rope_theta": c.factor("rope_local_base_freq", 10_000.0)}
        whole = dict(c.raw)
    wide = read_rope(whole, 1_000_000.0, dim)
    if wide.kind == "linear":  # max_position_embeddings is the stretched length here
        original = c.positive("max_position_embeddings") / wide.scaling["factor"]
        scaling = {**wide.scaling, "original_max_position_embeddings": float(int(original))}
        wide = dataclasses.replace(wide, scaling=scaling)
    return read_rope(near, 10_000.0, dim), wide
