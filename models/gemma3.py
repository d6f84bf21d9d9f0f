"""Gemma 3, multimodal: the text decoder alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError
from edgedec.models import gemma3_text
from edgedec.models.decoder import DecoderSpec

GGUF = ("gemma3",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise CheckpointError("config.json has no text_config, which gemma3 needs")
    found = gemma3_text.spec({**text, "model_type": "gemma3"})
    return dataclasses.replace(
        found, prefixes=("model.", "language_model.model.", "model.language_model.")
    )
