"""Reads the fields of a request's JSON body: checks each, and refuses those that it cannot use.

What reads one, here and for each API, raises ApiError where it is not as expected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from edgedec._support.fields import one_line
from edgedec.serve.errors import ApiError, refused

# Python parses JSON without a pause, and each of these takes it a microsecond.
_MOST_PARTS, _MOST_TEXTS, MOST_VALUES = 20_000, 50_000, 100_000


def parsed(raw: bytes | bytearray, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Return a body as a JSON object.

    Raises:
        ApiError: it is something else, or holds too many values.

    """
    if not _is_plain(raw, most_values):
        raise ApiError(400, f"the body: expected JSON with at most {most_values} values")
    try:
        found = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body: expected JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body: expected a JSON object")
    return found


def _is_plain(raw: bytes | bytearray, most_values: int) -> bool:
    """Return whether JSON holds few enough objects, lists, texts and other values."""
    if len(raw) <= _MOST_PARTS:
        return True
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 2 * _MOST_TEXTS:
        return False
    outside = b"".join(bare.split(b'"')[::2])
    parts = outside.count(b"[") + outside.count(b"{")
    return parts <= _MOST_PARTS and outside.count(b",") <= most_values


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


class Body:
    """The fields of a JSON object; ``null`` counts as absent.

    Args:
        where: written before a field's name in errors.

    Attributes:
        ignored: names of fields without an effect, filled by ``end``.

    """

    def __init__(self, fields: dict[str, Any], where: str = "") -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._where = where
        self._known: set[str] = set()
        self._parts: dict[str, Body] = {}
        self.ignored: list[str] = []

    def get(self, name: str) -> Any:
        """Return a field as it is; None if it was left out."""
        self._known.add(name)
        return self._fields.get(name)

    def whole(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number; 40.0 is one, since JSON does not tell them apart."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refused(self._where + name, f"a whole number from {low} to {high}", value)
        return value

    def limit(self, name: str, most: int) -> int | None:
        """Return a number of tokens, of which -1, and Ollama's -2, are ``most``: no limit."""
        value = self.whole(name, -2, most)
        if value == 0:
            raise refused(
                self._where + name, f"a whole number from 1 to {most}, or -1 for no limit", value
            )
        return most if value is not None and value < 0 else value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.get(name)
        if value is None:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise refused(self._where + name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, name: str) -> bool | None:
        """Return true or false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise refused(self._where + name, "true or false", value)
        return value

    def text(self, name: str, choices: Sequence[str] = ()) -> str | None:
        """Return a text, one of these if there are any."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise refused(self._where + name, "a text", value)
        if choices and value not in choices:
            raise refused(self._where + name, f"one of {', '.join(choices)}", value)
        return value

    def part(self, name: str) -> Body | None:
        """Return an object in the object, the same one each time."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise refused(self._where + name, "an object", value)
        if name not in self._parts:
            self._parts[name] = Body(value, f"{self._where}{name}.")
            self._parts[name].ignored = self.ignored
        return self._parts[name]

    def rows(self, name: str) -> list[Any] | None:
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise refused(self._where + name, "a list", value)
        return value

    def refuse(self, advice: Mapping[str, str]) -> None:
        """Refuse fields that the route does not have, if they say anything, by what to do."""
        for name, instead in advice.items():
            if self.get(name) not in (None, "", []):
                raise ApiError(400, f"{name}: {instead}", param=name)

    def end(self, ignored: Collection[str] = ()) -> None:
        """Refuse fields that were not asked for, unless they leave the text as it is.

        Args:
            ignored: more fields that do, besides those of ``other_fields``.

        """
        for name, value in self._fields.items():
            if name in self._known:
                continue
            if name not in ignored and not accepted(name, value):
                instead = advice(name, self._known)
                full = self._where + one_line(name)
                raise ApiError(
                    400,
                    f"{full}: this server does not have this field: {instead}",
                    param=full,
                    code="unknown_parameter",
                )
            self.ignored.append(self._where + name)


# A field that cannot change the text is accepted, and a header of the answer lists it. One that is
# neutral at some values is accepted at those. Every other one is refused, with what to do.

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
        known: fields that would be used in its place.

    """
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name in NEUTRAL:
        return f"leave it out, or send {json.dumps(NEUTRAL[name])}"
    near = get_close_matches(name, known, 1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {near[0]}?" if near else "leave it out"
