"""GGUF weights on llama.cpp, loaded once and shared by all sessions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from edgedec.decoding.session import Rollback
from edgedec.decoding.session_base import check_capacity
from edgedec.decoding.tree import FloatArray
from edgedec.errors import BundleError, InputError, RuntimeUnavailable, SessionError
from edgedec.hardware.device import available_cores
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import opening, remote
from edgedec.runtimes.llamacpp.context import Context, Settings
from edgedec.runtimes.llamacpp.facts import in_fours, measure
from edgedec.runtimes.llamacpp.library import api
from edgedec.runtimes.llamacpp.loaded import LoadedWeights
from edgedec.runtimes.llamacpp.session import LlamaSession

DEFAULT_KV = "f16"
_BYTES_PER_THREAD = 8_000_000
_WIDTHS = 17  # a root and the longest drafts


class LlamaModel(LoadedWeights):
    """Implements ``edgedec.decoding.session.Model``; made by ``LlamaModel.load``."""

    session = LlamaSession

    @classmethod
    def load(cls, path: Path | str, options: LoadOptions | None = None) -> LlamaModel:
        """Load a GGUF model.

        Keys and values are f16 by default. Flash attention is llama.cpp's choice, but off on a
        processor, where only quantised keys and values need it. Sliding-window layers keep all
        tokens, so that every rejected draft can be rolled back. One pass is run, which also brings
        mapped weights into memory. Rows are independent of each other only with
        ``batch_invariant``, since a pair of tokens can cost twice as much as a single one.

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
        file = opening.find_file(Path(path))
        weights = opening.open_weights(file, options)
        settings = _settings(options, int(api.llama_model_size(weights.pointer)))
        try:
            probe = Context(weights, settings, PROBE_CELLS)
            facts = measure(probe)
            if remote.named(options):
                meet_widths(probe)
            holds = settings.paired and facts.rollback is Rollback.ANY and rows_hold(probe)
        except SessionError as error:
            raise BundleError(f"{file}: {error}") from error
        if settings.paired and not holds:
            raise RuntimeUnavailable(
                f"{file}: its rows depend on how many are computed together, even in pairs: "
                "load it without batch_invariant (--no-batch-invariant)"
            )
        if facts.rollback is Rollback.ANY and opening.on_processor(options):
            settings = dataclasses.replace(settings, fours=in_fours(weights))
        return cls(file, weights, settings, facts)

    def open(self, capacity: int) -> LlamaSession:
        """Return a new, empty session, whose cache grows with its text."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)


def _check(options: LoadOptions) -> None:
    kv = options.own.get("kv")
    if kv in ("q8_0", "q4_0") and options.own.get("flash_attention") is False:
        raise InputError(f"kv {kv} needs flash attention in llama.cpp: allow it, or take kv f16")


def meet_widths(context: Context) -> None:
    """Run a pass of every usual width, of which a server's first costs several round trips.

    Its client asks the server for the size of tensors of each new shape. Without this, a policy
    that measures a width once would take it for that much slower than it is.
    """
    for width in range(1, _WIDTHS + 1):
        context.run([0] * width, 0, head=True)
        context.logits(width)
        context.clear()


def default_threads(weight_bytes: int) -> int:
    """Return one thread per core this process may use, fewer if a thread's share is too small.

    All threads synchronise after every node of the graph, so a small model on many threads waits
    more than it computes.
    """
    return max(1, min(available_cores(), weight_bytes // _BYTES_PER_THREAD))


def _settings(options: LoadOptions, weight_bytes: int) -> Settings:
    threads = options.threads or default_threads(weight_bytes)
    kv, flash_attention = options.own.get("kv", DEFAULT_KV), options.own.get("flash_attention")
    if flash_attention is None and kv in ("f32", "f16") and opening.on_processor(options):
        # On a CPU, flash attention takes 1.5 times as long for a few rows after a long context, and
        # is less precise.
        flash_attention = False
    batch_threads = options.own.get("batch_threads", threads)
    return Settings(kv, flash_attention, threads, batch_threads, bool(options.batch_invariant))


# -- whether a row's logits are independent of the other rows of its pass -----------------------
#
# llama.cpp has kernels for single rows that sum in another order: for float matrices, and for
# attention over many tokens. A token computed together with a copy of itself never uses them.
# K-quants have more kernels that depend on the number of rows, which pairs do not avoid, so the
# property is tested.

_PROMPT_TOKENS, _TEXT_TOKENS = 11, 9
PROBE_CELLS = 32
# Ways to split the probe text into passes; the most likely failures come first.
_CUTS = ((8, 1), (2, 7), (4, 5), (1, 1, 1, 1, 1, 1, 3))


def rows_hold(context: Context) -> bool:
    """Return whether the same tokens give the same bits, however they are split into passes.

    Args:
        context: empty, and able to remove tokens.

    """
    rng = np.random.default_rng(0)
    size = context.vocab_size
    prompt, text = (rng.integers(0, size, n).tolist() for n in (_PROMPT_TOKENS, _TEXT_TOKENS))
    context.run(prompt, 0, head=False)
    whole = _rows(context, text, (len(text),))
    return all(np.array_equal(_rows(context, text, cut), whole) for cut in _CUTS)


def _rows(context: Context, text: list[int], cut: tuple[int, ...]) -> FloatArray:
    context.remove(0, _PROMPT_TOKENS)
    rows, start = [], 0
    for width in cut:
        context.run(text[start : start + width], _PROMPT_TOKENS + start, head=True)
        rows.append(context.logits(width).copy())
        start += width
    return np.concatenate(rows)
