"""EXAONE 4: norms after attention and MLP and on each head; layers that see all do not rotate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.olmo2 import SOURCES
from edgedec.models.rope import read_rope

# Its windows follow from its number of layers, so only the size without any is the same here.
GGUF = ("exaone4",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes.

    With ``sliding_window: null`` all layers see all tokens, and rotate.
    """
    c = Config(config)
    layers, size = c.positive("num_hidden_layers"), c.window(4096)
    every, dim = c.every("sliding_window_pattern", 4), c.rotary_dim(1.0)
    sliding = c.kinds([(layer + 1) % every != 0 for layer in range(layers)])
    rope = read_rope(c.raw, 10_000.0, dim)
    return c.decoder(
        norm=c.norm(default=1e-5, placement="post"),
        qk_norm="head",
        windows=tuple(size if slides else 0 for slides in sliding),
        ropes=tuple(rope if slides or not size else None for slides in sliding),
        rotary_dim=dim,
        sources=SOURCES,
    )
