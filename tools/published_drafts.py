"""Compares the list of published drafts with the hub, entry by entry.

::

    python -m tools.published_drafts            every entry
    python -m tools.published_drafts Qwen3      those whose names have this in them

Needs the extra ``hub`` and the network; HF_ENDPOINT names another hub. Nothing is downloaded. A
line says what the hub has and the list has not; the exit code is 1 if there is any. Change
``edgedec/library/published.toml`` by hand after reading the draft's page.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from edgedec.library.published import DRAFTS, MTP, TARGETS, Draft, Target

# Share by which a stated size may be off, and one that was calculated.
_STATED, _CALCULATED = 0.02, 0.5
_GATED = "gated"


def main(words: Sequence[str]) -> int:
    """Print a line for each difference; return 1 if there is one."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    count = 0
    entries: list[Target | Draft] = [*TARGETS, *DRAFTS]
    for one in entries:
        if words and not any(word.lower() in one.name.lower() for word in words):
            continue
        for line in differences(one, api):
            print(f"{one.name}: {line}")
            count += 1
    print(f"{count} differences" if count else "the list is as the hub says")
    return 1 if count else 0


def differences(one: Target | Draft, api: Any) -> Iterator[str]:
    """Yield what the hub says otherwise of a target or a draft."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        info = api.model_info(one.name, files_metadata=True)
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        yield f"the hub answers {status}"
        return
    if info.id != one.name:
        yield f"it is called {info.id} now"
    if isinstance(one, Draft):
        yield from _licence(one, info)
        yield from _files(one, {file.rfilename for file in info.siblings or ()})
        yield from _size(one, info)


def _licence(draft: Draft, info: Any) -> Iterator[str]:
    card = info.card_data
    stated = getattr(card, "license", None) if card is not None else None
    if stated in (None, "other"):
        stated = getattr(card, "license_name", None) or stated
    if stated is None:
        return
    if draft.licence is None:
        yield f"the hub states a licence, {stated}, and the list none"
    elif stated != "other" and not {*_words(stated)} & {*_words(draft.licence)}:
        yield f"licence {stated} on the hub, {draft.licence} in the list"
    if bool(info.gated) != (_GATED in draft.note):
        yield f"it is {'' if info.gated else 'not '}gated, and the note says otherwise"


def _words(licence: str) -> list[str]:
    return re.findall(r"[a-z]+", licence.lower())


def _files(draft: Draft, names: set[str]) -> Iterator[str]:
    if not any(re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors", name) for name in names):
        yield "it has no model.safetensors, which alone is read"
    if "config.json" not in names:
        yield "it has no config.json"


def _size(one: Draft, info: Any) -> Iterator[str]:
    counted = getattr(info.safetensors, "total", None)
    if counted is None or not one.millions or one.kind == MTP:  # inside its target
        return
    share = _CALCULATED if one.calculated else _STATED
    millions = counted / 1e6
    if abs(millions - one.millions) > max(1, share * one.millions):
        yield f"{millions:.0f} M parameters on the hub, {one.millions} M in the list"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
