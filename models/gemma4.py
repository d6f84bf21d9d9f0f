"""Gemma 4, multimodal: the text decoder alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models import gemma4_text
from edgedec.models.config import text_config
from edgedec.models.decoder import DecoderSpec

GGUF = gemma4_text.GGUF


def spec(config: Mapping[str, Any], **defaults: Any) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes; ``defaults`` are of fields it omits."""
    found = gemma4_text.spec({**defaults, **text_config(config)})
    return dataclasses.replace(
        found, prefixes=("model.", "model.language_model.", "language_model.model.")
    )
