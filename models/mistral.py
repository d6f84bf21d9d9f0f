"""Mistral 7B and its relatives: Llama with a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec

GGUF = ("llama", "granite_swa")


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes.

    ``sliding_window: null`` sees all; where the field is missing, it is the first Mistral's.
    """
    c = Config(config)
    return c.decoder(windows=(c.window(4096),) * c.count("num_hidden_layers"))
