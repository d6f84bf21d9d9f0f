"""Qwen3.5's sparse mixtures, multimodal: the text decoder alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models import qwen3_5_moe_text
from edgedec.models.config import text_config
from edgedec.models.decoder import DecoderSpec

GGUF = ("qwen35moe",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    return qwen3_5_moe_text.spec(text_config(config))
