"""The sampling that a GGUF file asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# Keys by the names of ``generation_config.json``, which has no others that they stand for.
KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
MOST = 1 << 31  # what is no smaller, or no number, says nothing


def stated_sampling(metadata: Mapping[str, Any]) -> dict[str, float]:
    """Return the sampling in a file's metadata, by the names of ``generation_config.json``."""
    stated = {name: metadata.get(key) for name, key in KEYS.items()}
    # A float is the shortest number among those that are the same in the file's 32 bits.
    return {
        name: value if isinstance(value, int) else float(str(np.float32(value)))
        for name, value in stated.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST
    }
