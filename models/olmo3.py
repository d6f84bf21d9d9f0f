"""OLMo 3: OLMo 2 in which three of four layers have a window, and a rotation without scaling."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.models import olmo2
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

# llama.cpp knows OLMo 3 as OLMo 2 with windows.
GGUF = ("olmo2",)


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c, found = Config(config), olmo2.spec(config)
    sliding = c.kinds([(layer + 1) % 4 != 0 for layer in range(found.layers)])
    size = c.window(4096)
    rope = found.ropes[0]
    assert rope is not None
    return dataclasses.replace(
        found,
        windows=tuple(size if slides else 0 for slides in sliding),
        ropes=tuple(Rope(rope.theta) if slides else rope for slides in sliding),
    )
