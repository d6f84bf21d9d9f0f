"""Checks prompts against the context before a model is loaded, and names the limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedec._support.amounts import megabytes
from edgedec.errors import PromptTooLong
from edgedec.loading import build
from edgedec.loading.build import OpenOptions
from edgedec.memory.budget import KV_MEMORY, MAX_CONTEXT, TRAINED, bound_by

# A token covers at least one byte of text, a character takes at most four bytes, and tokenizers add
# a few tokens around a text.
_BYTES, _AROUND = 4, 64
# No model has a shorter context, so shorter prompts are accepted without reading the files.
_SHORTEST = 512


def check_prompt(
    where: str | Path, options: OpenOptions, prompt: str | Sequence[dict[str, Any]]
) -> None:
    """Refuse a prompt that exceeds the largest possible context, without loading a model.

    Prompts that fit with any tokenizer are accepted without loading the tokenizer either.

    Args:
        prompt: a text, or messages.

    Raises:
        PromptTooLong: names the limit.
        BundleError, InputError: as ``Pipeline.open`` raises them, or a refused conversation.

    """
    text = prompt if isinstance(prompt, str) else "".join(map(str, prompt))
    if _BYTES * len(text) + _AROUND <= min(_SHORTEST, options.max_context or _SHORTEST):
        return
    target = build.find_pair(where, options).target
    limits = {TRAINED: target.max_context, MAX_CONTEXT: options.max_context}
    if options.kv_memory is not None and options.max_context is None and target.kv_bytes_per_token:
        # An upper bound: the share of a draft's cache is known when both models are loaded.
        limits[KV_MEMORY] = options.kv_memory // target.kv_bytes_per_token
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if not known:
        return
    if isinstance(prompt, str) and _BYTES * len(text) + _AROUND <= min(known.values()):
        return
    tokenizer = target.read_tokenizer()
    tokens = len(
        tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.encode_chat(prompt)
    )
    held = known.pop(KV_MEMORY, tokens)
    bound = min(known, key=lambda name: known[name], default=None)
    if bound is not None and tokens > known[bound]:
        raise too_long(tokens, known[bound], bound)
    if tokens > held:
        taken = megabytes(tokens * (target.kv_bytes_per_token or 0))
        raise PromptTooLong(
            f"the prompt has {tokens} tokens, whose keys and values take {taken} MB or more:"
            f" {bound_by(KV_MEMORY)}"
        )


def too_long(tokens: int, capacity: int, bound: str) -> PromptTooLong:
    """Return the error for a prompt that the context does not hold, with advice."""
    return PromptTooLong(
        f"the prompt has {tokens} tokens and the context holds {capacity}: {bound_by(bound)}"
    )
