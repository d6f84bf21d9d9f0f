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
    return qwen3_5_text.spec(text(config))


def text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what describes the text decoder, with the whole model's type."""
    kind, found = config.get("model_type"), config.get("text_config")
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config.json has no text_config, which {kind} needs")
    tied = {"tie_word_embeddings": config.get("tie_word_embeddings")}
    return {**tied, **found, "model_type": kind}
