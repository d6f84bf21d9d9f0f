"""Mistral 3, with images: the text decoder alone, of Ministral 3 or of Mistral Small 3.1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models import ministral3, mistral
from edgedec.models.decoder import DecoderSpec

GGUF = ("llama", "granite_swa")

_TEXTS = {"ministral3": ministral3.spec, "mistral": mistral.spec}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that ``text_config`` describes."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise CheckpointError("config.json has no text_config, which mistral3 needs")
    if "quantization_config" in config:  # the instruct models, in FP8
        text = {**text, "quantization_config": config["quantization_config"]}
    kind = text.get("model_type", "ministral3")
    if kind not in _TEXTS:
        known = " or ".join(sorted(_TEXTS))
        raise UnsupportedArchitecture(f"config.json: text_config is a {kind!r}, expected {known}")
    found = _TEXTS[kind]({**text, "model_type": "mistral3"})
    return dataclasses.replace(
        found, prefixes=("model.", "language_model.model.", "model.language_model.")
    )
