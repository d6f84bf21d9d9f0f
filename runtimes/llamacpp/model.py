"""GGUF weights on llama.cpp, loaded once and shared by all sessions."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from edgedec.decoding.session import Rollback
from edgedec.decoding.session_base import check_capacity
from edgedec.errors import BundleError, InputError, RuntimeUnavailable, SessionError
from edgedec.gguf.parts import named_parts
from edgedec.hardware.device import available_cores
from edgedec.hardware.outcomes import KnownOutcomes
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import opening, rows
from edgedec.runtimes.llamacpp.context import Context, Settings
from edgedec.runtimes.llamacpp.facts import Facts, fingerprint, in_fours, measure, quantised
from edgedec.runtimes.llamacpp.library import Weights, api, keeps_states, version
from edgedec.runtimes.llamacpp.loaded import LoadedWeights
from edgedec.runtimes.llamacpp.session import LlamaSession

_log = logging.getLogger("edgedec")
DEFAULT_KV = "f16"
_BYTES_PER_THREAD = 8_000_000
_FIRST_CELLS = 32
_WIDTHS = 17  # a root and the longest drafts
_SHARE = 4
# The user is told why the first opening of such a file takes long.
_LARGE_BYTES = 500_000_000


class LlamaModel(LoadedWeights):
    """Implements ``edgedec.decoding.session.Model``; made by ``LlamaModel.load``."""

    session = LlamaSession

    @classmethod
    def load(cls, path: Path | str, options: LoadOptions | None = None) -> LlamaModel:
        """Load a GGUF model.

        Keys and values are f16 by default, flash attention is llama.cpp's choice, but off on a
        processor, where only quantised keys and values need it. Sliding-window layers keep all
        tokens, so that every rejected draft can be rolled back. One pass is run, which also brings
        mapped weights into memory. At a file's first opening on a processor, ``rows`` tests which
        other settings make rows independent of each other, and what they cost. They are used where
        that is next to nothing, and with ``batch_invariant`` at any cost.

        Args:
            path: the file, the first part of a split one, or its folder.
            options: load options; its own are ``edgedec.runtimes.llamacpp.OPTIONS``.

        Raises:
            InputError: options that exclude each other.
            BundleError: the file is missing, damaged, or holds no decoder.
            RuntimeUnavailable: a device or locked memory is not available, or batch invariance was
                requested and pairs do not achieve it.

        """
        options = options or LoadOptions()
        _check(options)
        opened = _Opened(opening.find_file(Path(path)), options)
        file = opened.file
        try:
            way = _way(opened)
            weights = opened.weights(options.own.get("repack") if way is None else way.repack)
            settings = opened.settings(weights)
            settings = settings if way is None else way.applied(settings)
            probe = Context(weights, settings, _FIRST_CELLS)
            facts = measure(probe)
            if opening.servers_of(options):
                meet_widths(probe)
        except SessionError as error:
            raise BundleError(f"{file}: {error}") from error
        if options.batch_invariant and way is None:
            raise RuntimeUnavailable(
                f"{file}: its rows depend on how many are computed together, even in pairs: "
                "load it without batch_invariant (--no-batch-invariant)"
            )
        if facts.rollback is not Rollback.ANY:
            kept = _kept(file, facts, int(api.llama_model_size(weights.pointer)))
            settings = dataclasses.replace(settings, fours=False, sequences=1, kept=kept)
            facts = facts if kept else dataclasses.replace(facts, rollback=Rollback.REPLAY)
        return cls(file, weights, settings, facts)

    def open(self, capacity: int) -> LlamaSession:
        """Return a new, empty session, whose cache grows with its text."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)


def _kept(file: Path, facts: Facts, weight_bytes: int) -> int:
    """Return how many earlier states a session keeps: for the longest drafts, if that fits.

    They may take a quarter of the memory of the weights.
    """
    if not keeps_states():
        _log.warning(
            "%s: a recurrent model, of which this llama.cpp (%s) keeps no earlier states: it is"
            " decoded plainly; with llama-cpp-python 0.3.36 or later it may draft",
            file.name, version(),
        )  # fmt: skip
    if facts.rollback is not Rollback.RECENT:
        return 0
    return min(_WIDTHS - 1, weight_bytes // (_SHARE * facts.state_bytes))


def _check(options: LoadOptions) -> None:
    kv = options.own.get("kv")
    if kv in ("q8_0", "q4_0") and options.own.get("flash_attention") is False:
        raise InputError(f"kv {kv} needs flash attention in llama.cpp: allow it, or take kv f16")


class _Opened:
    """A file, and its weights as they were loaded last.

    Args:
        file: the file.
        options: load options.

    """

    def __init__(self, file: Path, options: LoadOptions) -> None:
        self.file, self.options = file, options
        self._weights: Weights | None = None
        self._repack: bool | None = None

    def weights(self, repack: bool | None) -> Weights:
        """Return the weights, reordered or not; others are freed before they are loaded."""
        repack = repack is not False
        if self._weights is None or self._repack != repack:
            self._weights = None
            self._weights = opening.open_weights(self.file, self.options.changed(repack=repack))
            self._repack = repack
        return self._weights

    def quantised(self) -> bool:
        """Return whether the weights that are loaded are quantised; False if none are."""
        return self._weights is not None and quantised(self._weights)

    def settings(self, weights: Weights) -> Settings:
        """Return the usual settings."""
        found = usual_settings(self.options, int(api.llama_model_size(weights.pointer)))
        fours = opening.on_processor(self.options) and bool(self._repack) and in_fours(weights)
        if weights.recurrent:  # to be measured; a state cannot drop the copy of a token
            found, fours = dataclasses.replace(found, sequences=2, kept=1), False
        return dataclasses.replace(found, fours=fours)


def _way(opened: _Opened) -> rows.Way | None:
    """Return settings that make rows independent; None if there are none or none are wanted."""
    options, on_processor = opened.options, opening.on_processor(opened.options)
    if options.batch_invariant is False:
        return None
    way = _known(opened, rows.ways(options)) if on_processor else None
    if way is not None or not options.batch_invariant:
        return way
    return _known(opened, rows.pairs(options))


def _known(opened: _Opened, tried: Sequence[rows.Way]) -> rows.Way | None:
    """Return the first of these ways that holds, searched for unless it is known."""
    options = opened.options
    asked = bool(options.batch_invariant)
    if not tried:
        return None

    def search() -> str:
        size = sum(part.stat().st_size for part in named_parts(opened.file))
        if size >= _LARGE_BYTES and not tried[0].paired:  # those come after others
            _log.warning(
                "%s: opened here for the first time: under which settings drafts cannot change its"
                " text is tried once, as long as some hundred tokens take; --no-batch-invariant"
                " leaves that out",
                opened.file.name,
            )
        way = rows.find(tried, opened.weights, opened.settings, asked=asked)
        if way is None and not asked and opened.quantised():
            _log.warning(
                "%s: drafts may change its text at near-ties; --batch-invariant, if it can, rules"
                " that out and takes longer",
                opened.file.name,
            )
        return next(name for name, one in named.items() if one == way)

    named = rows.outcomes(tried)
    on_processor = opening.on_processor(options)
    known = KnownOutcomes(
        "rows",
        named_parts(opened.file),
        lambda: f"{fingerprint(opened.file)} {options.threads} {options.own} {asked}",
        options.threads or available_cores(),
        f"{version()} {api.llama_print_system_info().decode()}" if on_processor else None,
    )
    return named[known.get([*named], search)]


def meet_widths(context: Context) -> None:
    """Run a pass of every usual width, of which a server's first costs several round trips.

    Its client asks the server for the size of tensors of each new shape. Without this, a policy
    that measures a width once would take it for that much slower than it is.
    """
    for width in range(1, min(_WIDTHS, context.rows) + 1):
        context.run([0] * width, 0, head=True)
        context.logits(width)
        context.clear()


def default_threads(weight_bytes: int) -> int:
    """Return one thread per core this process may use, fewer if a thread's share is too small.

    All threads synchronise after every node of the graph, so a small model on many threads waits
    more than it computes.
    """
    return max(1, min(available_cores(), weight_bytes // _BYTES_PER_THREAD))


def usual_settings(options: LoadOptions, weight_bytes: int) -> Settings:
    """Return the settings where rows need not be independent of each other."""
    threads = options.threads or default_threads(weight_bytes)
    kv, flash_attention = options.own.get("kv", DEFAULT_KV), options.own.get("flash_attention")
    if flash_attention is None and kv in ("f32", "f16") and opening.on_processor(options):
        # On a CPU, flash attention takes 1.5 times as long for a few rows after a long context, and
        # is less precise.
        flash_attention = False
    batch_threads = options.own.get("batch_threads", threads)
    return Settings(kv, flash_attention, threads, batch_threads)
