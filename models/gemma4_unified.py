"""Gemma 4 whose images and sounds are tokens of the decoder (12B): the text decoder alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models import gemma4
from edgedec.models.decoder import DecoderSpec

GGUF = gemma4.GGUF


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes; its layers have no inputs of their own."""
    return gemma4.spec(
        config,
        hidden_size_per_layer_input=0,
        sliding_window=1024,
        max_position_embeddings=262_144,
    )
