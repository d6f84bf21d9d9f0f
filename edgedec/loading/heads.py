"""Loads a target's head, and checks that the two fit."""

from __future__ import annotations

from edgedec.decoding.session import Model
from edgedec.decoding.session_abilities import HeadModel
from edgedec.errors import BundleError, InputError
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Pair
from edgedec.runtimes import registry


def load_head(pair: Pair, target: Model, options: OpenOptions) -> HeadModel:
    """Load the head of the bundle for its loaded target.

    Raises:
        InputError: there is none, or an option excludes it.
        BundleError: it is damaged, or was exported for another target.

    """
    own = None if pair.bundle is None else pair.bundle.head
    if pair.head is None and own is not None:
        raise InputError(
            f"the head of {pair.where} is for {', '.join(own.variants)}, not for"
            f" {pair.target.format}: give --format {next(iter(own.variants))}, or try --drafter"
            " lookup"
        )
    if pair.head is None:
        raise InputError(
            f"--drafter head needs a head, and {pair.where} has none: export the target with"
            " --head, or try --drafter lookup"
        )
    if options.memory is not None:
        raise InputError(
            "--drafter head takes memory that --memory does not count yet: leave --memory out, or"
            " try --drafter hybrid"
        )
    if not target.capabilities.taps:
        raise InputError(
            "--drafter head reads the target's states, which it does not show in this place: leave"
            " --weight-memory out, or try --drafter lookup"
        )
    pair.head.admit()
    files = pair.head.files.values()
    head = registry.load_head(pair.head.format, pair.head.path, files, options.load)
    columns = head.info.vocab_size, target.info.vocab_size
    if columns[0] != columns[1]:
        head.close()
        raise BundleError(
            f"{pair.head.path}: the head scores {columns[0]} tokens, the target {columns[1]}:"
            " export both again"
        )
    if head.reads != target.capabilities.taps:
        head.close()
        raise BundleError(
            f"{pair.head.path}: the head reads the streams before layers {list(head.reads)}, the"
            f" target shows those before {list(target.capabilities.taps)}: export both again"
        )
    return head
