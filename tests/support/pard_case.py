"""A tiny target and a parallel draft, for PARD's own loop and for the test that repeats it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiny_tokenizers
from tiny_models import random_stored, save_checkpoint, tiny_config

from edgedec.models.registry import spec_for

CASE = Path(__file__).parents[1] / "golden" / "heads" / "pard.json"
DRAFT_LENGTH, NEW_TOKENS = 4, 60
PROMPT = [5, 80, 7, 33, 12, 61, 90, 2, 44, 18]
MASK = 3


def checkpoints(folder: Path) -> tuple[Path, Path]:
    """Write both; the draft is the target with other noise in its weights, so that it is close."""
    # Exactly the tokenizer's tokens: edgedec never chooses a column that is none.
    tokenizer = tiny_tokenizers.byte_level()
    config = tiny_config(vocab_size=tokenizer.get_vocab_size())
    tensors = random_stored(spec_for(config))
    rng = np.random.default_rng(1)
    near = {
        name: values * (1 + 0.1 * rng.standard_normal(values.shape, dtype=np.float32))
        for name, values in tensors.items()
    }
    # A mask that is nearly nothing: the rows behind it go on from the text.
    near["model.embed_tokens.weight"][MASK] *= 0.05
    target = save_checkpoint(folder / "target", config, tensors)
    draft = save_checkpoint(folder / "draft", {**config, "pard_token": MASK}, near)
    for each in (target, draft):
        tiny_tokenizers.save(tokenizer, each)
    return target, draft
