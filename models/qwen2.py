"""Qwen2 and Qwen2.5: Llama with biases on query, key and value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec

GGUF = ("qwen2", "llama", "granite_swa")


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    c.refuse("use_mrope")
    return c.decoder(qkv_bias=True, windows=windows(c))


def windows(c: Config) -> tuple[int, ...]:
    """Return for each layer its window: the first ``max_window_layers`` have full attention."""
    layers = c.count("num_hidden_layers")
    size = c.window(4096) if c.flag("use_sliding_window") else 0
    whole = c.count("max_window_layers", 28)
    sliding = c.kinds([layer >= whole for layer in range(layers)])
    return tuple(size if slides else 0 for slides in sliding)
