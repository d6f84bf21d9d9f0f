"""Fields that other servers have and this one does not, and what becomes of each.

A field that cannot change the text is accepted, and a header of the answer lists it. One that is
neutral at some values is accepted at those. Every other one is refused, with what to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

# Accepted at any value. ``docs/server-routes.md`` lists them, and a test compares the two.
HARMLESS = frozenset({
    # Whom a request is for, where it is kept and how it is billed.
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "request_id", "priority",
    # Hints for speed, and how long a model stays loaded.
    "prediction", "draft_model", "cache_prompt", "id_slot", "slot_id", "n_keep", "keep_alive",
    "ttl", "timings_per_token", "return_progress",
    # Of the context that the server was started with, and of routes to other servers.
    "num_ctx", "repeat_last_n", "provider", "transforms", "route",
    # Thinking and calls are always apart from the answer; grammars have one backend.
    "reasoning_format", "include_reasoning", "parse_tool_calls", "guided_decoding_backend",
    # A wish about style, and a limit on calls, which models are not trained to follow here.
    "verbosity", "parallel_tool_calls",
    # Parameters of samplers that are off; their switches are in ``NEUTRAL``.
    "mirostat_tau", "mirostat_eta", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "dry_sequence_breakers", "xtc_threshold", "dynatemp_exponent",
})  # fmt: skip

# Accepted at this value alone, at which they change nothing.
NEUTRAL: dict[str, Any] = {
    "allowed_token_ids": [],
    "bad_words": [],
    "best_of": 1,
    "dry_multiplier": 0,
    "dynatemp_range": 0,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "functions": [],
    "guidance_scale": 1,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "length_penalty": 1,
    "lora": [],
    "min_keep": 0,
    "min_tokens": 0,
    "mirostat": 0,
    "mirostat_mode": 0,
    "modalities": ["text"],
    "n_indent": 0,
    "n_probs": 0,
    "post_sampling_probs": False,
    "prompt_logprobs": 0,
    "reasoning_budget": -1,
    "response_fields": [],
    "return_token_ids": False,
    "return_tokens": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "stop_token_ids": [],
    "t_max_predict_ms": 0,
    "tfs_z": 1,
    "top_a": 0,
    "top_n_sigma": -1,
    "typical_p": 1,
    "use_beam_search": False,
    "watermark": False,
    "xtc_probability": 0,
}

# What to send instead of fields that people know from elsewhere.
_INSTEAD = {
    "functions": "send tools",
    "function_call": "send tool_choice",
    "guided_choice": "send response_format",
    "guided_grammar": "send response_format",
    "guided_json": "send response_format",
    "guided_regex": "send response_format",
    "structured_outputs": "send response_format",
    "max_length": "send max_tokens",
    "stop_sequences": "send stop",
    "reasoning": "send reasoning_effort",
    "think": "send enable_thinking",
    "cache_salt": "leave it out and start the server with --private-cache",
    "draft": "send it within edgedec",
    "drafter": "send it within edgedec",
    "draft_length": "send it within edgedec",
}
_LONGEST_NAME = 64


def accepted(name: str, value: Any) -> bool:
    """Return whether a field that is not used leaves the text as it is."""
    return name in HARMLESS or (name in NEUTRAL and value == NEUTRAL[name])


def advice(name: str, known: Collection[str]) -> str:
    """Return what to do about a field that is refused.

    Args:
        name: of the field.
        known: fields that would be used in its place.

    """
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name in NEUTRAL:
        return f"leave it out, or send {json.dumps(NEUTRAL[name])}"
    near = get_close_matches(name, known, 1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {near[0]}?" if near else "leave it out"
