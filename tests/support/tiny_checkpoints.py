"""Checkpoints of a tiny random target and of drafts that are like it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiny_models
import tiny_tokenizers
from tokenizers import AddedToken, Tokenizer

from edgedec.models.registry import spec_for


def noisy_checkpoint(
    folder: Path,
    *,
    noise: float = 0.0,
    seed: int = 0,
    context: int = 256,
    tokenizer: Tokenizer | None = None,
    entries: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a random model, the same for a seed but for noise each time, and return its folder.

    Args:
        folder: to write, with its parents.
        noise: how far its weights stray from those of the seed.
        seed: of the weights.
        context: tokens it was trained for.
        tokenizer: a byte-level one if None; the model has a row for each of its tokens.
        entries: of ``tokenizer_config.json``, which is left out without any.
        changes: of the tiny configuration.

    """
    tokenizer = tiny_tokenizers.byte_level() if tokenizer is None else tokenizer
    own = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": context}
    config = tiny_models.tiny_config(**own | changes)
    tensors = tiny_models.random_tensors(spec_for(config), seed)
    rng = np.random.default_rng(1)
    for name, values in tensors.items():
        tensors[name] = values + noise * rng.standard_normal(values.shape, dtype=np.float32)
    tiny_models.save_checkpoint(folder, config, tensors)
    tiny_tokenizers.save(tokenizer, folder)
    if entries is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(entries), "utf-8")
    return folder


def scripted_checkpoint(
    folder: Path,
    *scripts: Sequence[str],
    context: int,
    entries: Mapping[str, Any],
    special: Sequence[str] = (),
) -> Path:
    """Write a model that has learnt texts, each of which follows its first part at a prompt's end.

    Each part is a token of its own, which alone decides the next; after the last one it ends.
    ``special`` are tokens that are no text.
    """
    config = tiny_models.tiny_config(vocab_size=384, max_position_embeddings=context)
    spec = spec_for(config)
    tensors = tiny_models.random_tensors(spec)
    tokenizer = Tokenizer.from_str(tiny_tokenizers.byte_level().to_str())
    parts = dict.fromkeys(part for script in scripts for part in script)
    tokenizer.add_special_tokens([AddedToken(part) for part in special])
    tokenizer.add_tokens([AddedToken(part) for part in parts if part not in special])
    embedded, head = tensors[spec.name("embed")], tensors[spec.name("head")]
    for name, values in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[:] = 0  # what stands before the last token does not matter
        elif name.endswith("norm.weight"):
            values[:] = 1
    head *= 0.1
    ends = np.zeros_like(embedded[0])
    for script in scripts:
        ids = [tokenizer.token_to_id(part) for part in script]
        for token, following in itertools.pairwise(ids):
            head[following] = embedded[token] / np.linalg.norm(embedded[token])
        ends += embedded[ids[-1]] / np.linalg.norm(embedded[ids[-1]])
    head[config["eos_token_id"]] = ends
    tiny_models.save_checkpoint(folder, config, tensors)
    tiny_tokenizers.save(tokenizer, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(entries), "utf-8")
    return folder
