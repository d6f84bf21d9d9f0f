"""Qwen3.5, multimodal: the text decoder alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError
from edgedec.models import qwen3_5_text
from edgedec.models.decoder import DecoderSpec

GGUF = ("qwen35",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise CheckpointError("config.json has no text_config, which qwen3_5 needs")
    tied = {"tie_word_embeddings": config.get("tie_word_embeddings")}
    return qwen3_5_text.spec({**tied, **text, "model_type": "qwen3_5"})
