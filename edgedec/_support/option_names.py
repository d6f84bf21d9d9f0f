"""Names of options: takes former ones, refuses unknown ones and says which was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgedec.errors import InputError

# Names of options in other libraries, with what they are called here.
ELSEWHERE = {
    "max_tokens": "max_new_tokens", "max_length": "max_new_tokens", "n_predict": "max_new_tokens",
    "do_sample": "temperature", "repeat_penalty": "repetition_penalty", "stop_strings": "stop",
    "stop_words": "stop", "max_time": "timeout", "enable_thinking": "think", "thinking": "think",
    "thinking_budget": "think_tokens",
    "n_ctx": "max_context", "n_threads": "threads", "draft_path": "draft",
    "num_predict": "max_new_tokens", "num_ctx": "max_context", "num_thread": "threads",
    "temp": "temperature", "draft_model": "draft", "assistant_model": "draft",
    "num_assistant_tokens": "draft_length", "num_draft_tokens": "draft_length",
    "n_gpu_layers": "gpu_layers", "num_gpu": "gpu_layers",
}  # fmt: skip


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError for an unknown name, with the one that was probably meant."""
    for name in given:
        if name in known:
            continue
        elsewhere = ELSEWHERE.get(name, "")
        near = [elsewhere] if elsewhere in known else difflib.get_close_matches(name, known, 2)
        meant = (
            f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"
        )
        raise TypeError(f"unknown option {name!r}: {meant}")


def present_names(given: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """Return options by their present names, given the table of former ones.

    Raises:
        InputError: an option has two values, one by each name.

    """
    found = {name: value for name, value in given.items() if name not in former}
    for name in former.keys() & given.keys():
        present, value = former[name], given[name]
        now = found.setdefault(present, value)
        if now is None:
            found[present] = value
        elif value not in (None, now):
            raise InputError(
                f"{name} is {value!r:.60} and {present} is {now!r:.60}: give one, {present}"
            )
    return found
