"""SmolLM3: Llama in which every fourth layer has no positions (NoPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import read_rope

# If every layer rotates, it is a Llama.
GGUF = ("smollm3", "llama", "granite_swa")


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config({"tie_word_embeddings": True, "num_key_value_heads": 4, **config})
    biased, layers = c.flag("attention_bias"), c.positive("num_hidden_layers")
    size = c.window() if c.flag("use_sliding_window") else 0
    rotated = _rotated(c, layers)
    sliding = c.kinds([bool(size) and not has for has in rotated])
    dim = c.rotary_dim(1.0)
    rope = read_rope(c.raw, 2_000_000.0, dim)
    return c.decoder(
        windows=tuple(size if slides else 0 for slides in sliding),
        ropes=tuple(rope if has else None for has in rotated),
        rotary_dim=dim,
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=c.flag("mlp_bias"),
    )


def _rotated(c: Config, layers: int) -> list[bool]:
    """Return for each layer whether it rotates (1 in ``no_rope_layers``, despite its name)."""
    every = c.positive("no_rope_layer_interval", 4)
    given = c.raw.get("no_rope_layers")
    if given is None:
        given = [int((layer + 1) % every != 0) for layer in range(layers)]
    if not isinstance(given, list) or len(given) != layers or any(v not in (0, 1) for v in given):
        raise CheckpointError(
            f"config.json: no_rope_layers is not a list of {layers} zeros and ones"
        )
    return [bool(value) for value in given]
