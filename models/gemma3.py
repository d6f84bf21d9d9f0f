"""Gemma 3, multimodal: the text decoder alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models import gemma3_text
from edgedec.models.config import text_config
from edgedec.models.decoder import DecoderSpec

GGUF = ("gemma3",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    found = gemma3_text.spec(text_config(config))
    return dataclasses.replace(
        found, prefixes=("model.", "language_model.model.", "model.language_model.")
    )
