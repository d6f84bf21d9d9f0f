"""Mistral 3, with images: the text decoder alone, of Ministral 3 or of Mistral Small 3.1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec._support.fields import shown
from edgedec.errors import UnsupportedArchitecture
from edgedec.models import ministral3, mistral
from edgedec.models.config import text_config
from edgedec.models.decoder import DecoderSpec

GGUF = ("llama", "granite_swa")

_TEXTS = {"ministral3": ministral3.spec, "mistral": mistral.spec}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    text = text_config(config)
    kind = config["text_config"].get("model_type", "mistral")
    if not isinstance(kind, str) or kind not in _TEXTS:
        known = " or ".join(sorted(_TEXTS))
        raise UnsupportedArchitecture(
            f"config.json: text_config is a {shown(kind)}, expected {known}"
        )
    found = _TEXTS[kind](text)
    return dataclasses.replace(
        found, prefixes=("model.", "language_model.model.", "model.language_model.")
    )
