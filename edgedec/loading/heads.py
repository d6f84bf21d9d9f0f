"""Loads a target's head, and checks that the two fit."""

from __future__ import annotations

from functools import partial

from edgedec.decoding.session import Model
from edgedec.decoding.session_abilities import HeadModel, Showing
from edgedec.errors import BundleError, InputError
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Pair
from edgedec.loading.unloading_head import UnloadableHead
from edgedec.runtimes import registry


def show_states(pair: Pair, target: Model) -> None:
    """Make a target show the states that the bundle's head reads, if it has to be told which."""
    head = None if pair.bundle is None else pair.bundle.head
    if head is not None and isinstance(target, Showing):
        target.show(head.taps)


def load_head(pair: Pair, target: Model, options: OpenOptions) -> HeadModel:
    """Load the head of the bundle for its loaded target.

    Raises:
        InputError: there is none, or an option excludes it.
        BundleError: it is damaged, or was exported for another target.

    """
    if pair.head is None:
        raise InputError(
            f"--drafter head needs a head, and {pair.where} has none: export the target with"
            " --head, or try --drafter lookup"
        )
    if not target.capabilities.taps and pair.head.format != pair.target.format:
        raise InputError(
            f"the head of {pair.where} is for {pair.head.format}, and reads states that the"
            f" {pair.target.format} target does not show: give --format {pair.head.format}, or try"
            " --drafter lookup"
        )
    if not target.capabilities.taps:
        raise InputError(
            "--drafter head reads the target's states, which it does not show in this place: leave"
            " --weight-memory out, or try --drafter lookup"
        )
    pair.head.admit()
    source = pair.head
    load = partial(
        registry.load_head, source.format, source.path, source.files.values(), options.load
    )
    head = load() if options.memory is None else UnloadableHead(load)
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
