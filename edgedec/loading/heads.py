"""Loads a target's head, and checks that the two fit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from edgedec._support.amounts import megabytes
from edgedec.bundle import Bundle
from edgedec.decoding.drafting.head import state_bytes
from edgedec.decoding.session import (
    BorrowingSession,
    HeadModel,
    Lending,
    Model,
    Rehearsing,
    Showing,
)
from edgedec.errors import BundleError, EdgedecError, InputError
from edgedec.hardware.resident import resident_bytes
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Pair, Source
from edgedec.loading.unloading import UnloadableHead
from edgedec.memory.account import AUTO_LENGTH, FLOAT_BYTES
from edgedec.memory.grant import granting, with_spare
from edgedec.records.load import LoadOptions

Load = Callable[[Source, LoadOptions], Model]
# The least context for which a head is loaded, in tokens.
_SHORT = 512
# What a loaded head takes, with its passes and the states that wait, for each byte of its weights
# and beyond; measured on the demo's head in int4 and fp32, which took 2 to 4 MB less.
_LOADED, _OPEN_BYTES = 1.5, 12_000_000


def show_states(pair: Pair, target: Model) -> None:
    """Make a target show the states that the bundle's head reads, if it has to be told which."""
    head = None if pair.bundle is None else pair.bundle.head
    if head is not None and isinstance(target, Showing):
        target.show(head.taps)


def load_head(pair: Pair, target: Model, options: OpenOptions, load: Load) -> HeadModel:
    """Load the head of the bundle for its loaded target; under ``memory`` it can be unloaded.

    Raises:
        InputError: there is none, or an option or the target's format excludes it.
        BundleError: it is damaged, or was exported for another target.

    """
    source = _source(pair, target)
    checked = partial(_load, source, target, options, load)
    return checked() if options.memory is None else UnloadableHead(checked)


def _source(pair: Pair, target: Model) -> Source:
    own = None if pair.bundle is None else pair.bundle.head
    if own is None:
        raise InputError(
            f"--drafter head needs a head, and {pair.where} has none: export the target with"
            " --head, or try --drafter lookup"
        )
    other = pair.head is not None and pair.head.format != pair.target.format
    if pair.head is None or (other and not target.capabilities.taps):
        raise InputError(
            f"the head of {pair.where} is for {', '.join(own.variants)}, not for"
            f" {pair.target.format}: give --format {next(iter(own.variants))}, or try --drafter"
            " lookup"
        )
    if not target.capabilities.taps:
        raise InputError(
            "--drafter head reads the target's states, which it does not show in this place: leave"
            " --weight-memory out, or try --drafter lookup"
        )
    return pair.head


def _load(source: Source, target: Model, options: OpenOptions, load: Load) -> HeadModel:
    head = load(source, options.load)
    assert isinstance(head, HeadModel), "its role is a head's"
    try:
        _check(head, source, target)
    except EdgedecError:
        head.close()
        raise
    return head


def _check(head: HeadModel, source: Source, target: Model) -> None:
    """Raise BundleError if a head is for another target, InputError if this one does not lend."""
    columns = head.info.vocab_size, target.info.vocab_size
    if columns[0] != columns[1]:
        raise BundleError(
            f"{source.path}: the head scores {columns[0]} tokens, the target {columns[1]}:"
            " export both again"
        )
    if head.reads != target.capabilities.taps:
        raise BundleError(
            f"{source.path}: the head reads the streams before layers {list(head.reads)}, the"
            f" target shows those before {list(target.capabilities.taps)}: export both again"
        )
    if not head.capabilities.borrows:
        return
    if not target.capabilities.lends:
        raise InputError(
            "--drafter head reads the target's keys and values, which it has in float32 on ONNX"
            " Runtime alone: give --format onnx, export it with --kv fp32, or try --drafter lookup"
        )
    with closing(target.open(1)) as session, closing(head.open(1)) as own:
        assert isinstance(own, BorrowingSession), "of a head that borrows"
        assert isinstance(session, Lending), "of a target that lends"
        own.borrow(session)


def too_large(head: Source, bundle: Bundle, target: Model, options: OpenOptions) -> str:
    """Return why a head does not fit in ``memory``, before it is loaded; empty if it may.

    Args:
        head: not loaded.
        bundle: that has it. Of its target's file in the head's format, the head looks up rows.
        options: with a memory limit.

    """
    assert options.memory is not None, "without a limit nothing is too large"
    assert bundle.head is not None, "it is of this bundle"
    weights = bundle.stored_bytes(bundle.head, head.format)
    logits = 2 * FLOAT_BYTES * (AUTO_LENGTH + 1) * target.info.vocab_size
    context = min(options.max_context or _SHORT, target.info.max_context)
    cache = context * target.info.kv_bytes_per_token * options.caches
    _warm(target, context)
    held = int(_LOADED * weights) + logits + _OPEN_BYTES
    enough = with_spare(resident_bytes() + cache + held)
    if enough <= granting(options.memory)():
        return ""
    return (
        f"the head is left out, since the target's cache comes first: it takes about"
        f" {megabytes(held)} MB, and --memory {-(-enough // 10**6)}MB would hold it"
    )


def _warm(target: Model, context: int) -> None:
    """Let the target take the memory of its passes."""
    session = target.open(context)
    if isinstance(session, Rehearsing) and context > AUTO_LENGTH + 1:
        session.rehearse(context, AUTO_LENGTH + 1)
    session.close()


def waiting_bytes(head: HeadModel, options: OpenOptions) -> int:
    """Return the bytes of states that wait for a head in all parallel requests."""
    return state_bytes(head) * options.parallel
