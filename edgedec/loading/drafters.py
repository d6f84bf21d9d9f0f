"""Which drafter runs for a pair: the one that was asked for, or what ``auto`` stands for."""

from __future__ import annotations

from edgedec._support.model_path import is_gguf
from edgedec.decoding import drafting
from edgedec.decoding.drafting import HEADED, PLAIN
from edgedec.decoding.session import Model, Rollback
from edgedec.errors import InputError
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Pair


def drafter_name(pair: Pair, options: OpenOptions) -> str:
    """Return the name of the drafter for the files of a pair; InputError if it is a file."""
    if is_gguf(options.drafter):
        raise InputError(f"drafter {options.drafter!r}: expected a name; give a file to draft")
    if options.drafter != "auto":
        return options.drafter
    # A head was made for its target, a draft was not; --draft asks for that draft.
    if pair.head is not None and options.draft is None:
        return HEADED
    return drafting.default(with_model=pair.draft is not None)


def drafter_for(pair: Pair, target: Model, name: str, options: OpenOptions) -> tuple[str, str]:
    """Return the drafter's name for a loaded target, and why a head is left out, if one is.

    Unless one was asked for, that is plain decoding if each rejected draft would take another pass.
    """
    if name == HEADED and options.drafter == "auto" and not target.capabilities.taps:
        name = drafting.default(with_model=pair.draft is not None)
    left_out = ""
    bundle, head = pair.bundle, pair.head
    if options.memory is not None and bundle and head and drafting.info(name).needs_head:
        from edgedec.loading.heads import too_large

        left_out = too_large(head, bundle, target, options)
        name = drafting.default(with_model=False) if left_out else name
    if name != PLAIN and options.drafter == "auto" and options.draft is None:
        return PLAIN if target.capabilities.rollback is Rollback.REPLAY else name, left_out
    return name, left_out
