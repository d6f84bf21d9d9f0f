"""Names of options: refuses unknown ones, and says which was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

# Names of options in other libraries, and former ones, with what they are called here.
ELSEWHERE = {
    "max_tokens": "max_new_tokens", "max_length": "max_new_tokens", "n_predict": "max_new_tokens",
    "do_sample": "temperature", "repeat_penalty": "repetition_penalty", "stop_strings": "stop",
    "stop_words": "stop", "max_time": "timeout_s", "timeout": "timeout_s",
    "n_ctx": "max_context", "n_threads": "threads", "draft_path": "draft", "draft_model": "draft",
    "row_invariant": "batch_invariant",
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
