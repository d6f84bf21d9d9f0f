"""GGUF weights on llama.cpp, loaded once and shared by all sessions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from edgedec.decoding.session import Capabilities, ModelInfo, Rollback
from edgedec.decoding.session_base import check_capacity
from edgedec.decoding.tree import FloatArray
from edgedec.errors import (
    BundleError,
    InputError,
    RuntimeUnavailable,
    SessionError,
    StateError,
)
from edgedec.hardware.device import available_cores
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import opening
from edgedec.runtimes.llamacpp.context import CHUNK, Context, Settings, head_rows
from edgedec.runtimes.llamacpp.facts import (
    Facts,
    eos_ids,
    fingerprint,
    first_padding,
    in_fours,
    least_cells,
    measure,
)
from edgedec.runtimes.llamacpp.library import StopFlag, Weights, api
from edgedec.runtimes.llamacpp.session import LlamaSession

DEFAULT_KV = "f16"
_TOP_K = 8
_BYTES_PER_THREAD = 8_000_000


class LlamaModel:
    """Implements ``edgedec.decoding.session.Model``; made by ``LlamaModel.load``.

    Attributes:
        info: facts about the model.
        capabilities: features of its sessions.
        session: the class of its sessions.
        fingerprint: identifies it in saved states: its weights, and the types of keys and values.
        first_padding: the column where tokens end and padding begins.
        state_bytes: of a saved state without its tokens.

    """

    session = LlamaSession

    def __init__(self, file: Path, weights: Weights, settings: Settings, facts: Facts) -> None:
        # Now: the file may be another one when a state is saved.
        kinds = f"{settings.kv} {settings.flash_attention}"
        self.fingerprint = f"{fingerprint(file)} {kinds} {api.llama_version().decode()}"
        self._weights: Weights | None = weights
        self._settings = settings
        pointer, vocab = weights.pointer, weights.vocab
        vocab_size = int(api.llama_vocab_n_tokens(vocab))
        self.first_padding = first_padding(weights)
        self.state_bytes = facts.state_bytes
        self.capabilities = Capabilities(
            branches=head_rows(vocab_size) if facts.rollback is Rollback.ANY else 1,
            rollback=facts.rollback,
            top_k=min(_TOP_K, vocab_size),
            row_invariant=settings.paired,
            snapshot=True,
        )
        self.info = ModelInfo(
            name=weights.text("general.name") or file.stem,
            vocab_size=vocab_size,
            eos_ids=eos_ids(weights),
            max_context=int(api.llama_model_n_ctx_train(pointer)),
            kv_bytes_per_token=facts.kv_bytes_per_token,
            weight_bytes=int(api.llama_model_size(pointer)),
            threads=settings.threads,
            scratch_bytes_per_token=_scratch_bytes(settings, int(api.llama_model_n_head(pointer))),
        )

    @classmethod
    def load(cls, path: Path | str, options: LoadOptions | None = None) -> LlamaModel:
        """Load a GGUF model.

        Keys and values are f16 by default. Flash attention is llama.cpp's choice, but off on a
        processor, where only quantised keys and values need it. Sliding-window layers keep all
        tokens, so that every rejected draft can be rolled back. One pass is run, which also brings
        mapped weights into memory. Rows are independent of each other only if that is asked for,
        since a pair can cost twice a single token.

        Args:
            path: the file, the first part of a split one, or its folder.
            options: load options; its own are ``edgedec.runtimes.llamacpp.OPTIONS``.

        Raises:
            InputError: options that exclude each other.
            BundleError: the file is missing, damaged, or holds no decoder.
            RuntimeUnavailable: a device or locked memory is not available, or row invariance was
                asked for and pairs do not achieve it.

        """
        options = options or LoadOptions()
        _check(options)
        file = opening.find_file(Path(path))
        weights = opening.open_weights(file, options)
        settings = _settings(options, int(api.llama_model_size(weights.pointer)))
        try:
            probe = Context(weights, settings, PROBE_CELLS)
            facts = measure(probe)
            holds = settings.paired and facts.rollback is Rollback.ANY and rows_hold(probe)
        except SessionError as error:
            raise BundleError(f"{file}: {error}") from error
        if settings.paired and not holds:
            raise RuntimeUnavailable(
                f"{file}: its rows depend on how many are computed together, even in pairs: "
                "load it without row_invariant (--no-row-invariant)"
            )
        if facts.rollback is Rollback.ANY and opening.on_processor(options):
            settings = dataclasses.replace(settings, fours=in_fours(weights))
        return cls(file, weights, settings, facts)

    @property
    def weights(self) -> Weights:
        """The loaded weights; StateError once the model is closed."""
        if self._weights is None:
            raise StateError("the model is closed: load it again")
        return self._weights

    def least_cells(self, capacity: int) -> int:
        """Return the cells of a new session of this capacity."""
        return least_cells(self.weights, capacity)

    def new_context(self, cells: int, stop: StopFlag | None = None) -> Context:
        """Return a context for one session."""
        return Context(self.weights, self._settings, cells, stop)

    def open(self, capacity: int) -> LlamaSession:
        """Return a new, empty session, whose cache grows with its text."""
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)

    def close(self) -> None:
        """Release the weights, which are freed when the last session is closed, too."""
        self._weights = None


def _scratch_bytes(settings: Settings, heads: int) -> int:
    """Return the bytes of a chunk's attention for each token of the cache.

    Its scores are computed for all heads at once, and converted to f16 if values are f16. Flash
    attention needs no scores; the mask is always there.
    """
    scores = 0 if settings.flash_attention else heads * (6 if settings.kv == "f16" else 4)
    return CHUNK * (scores + 4)


def _check(options: LoadOptions) -> None:
    kv = options.own.get("kv")
    if kv in ("q8_0", "q4_0") and options.own.get("flash_attention") is False:
        raise InputError(f"kv {kv} needs flash attention in llama.cpp: allow it, or take kv f16")


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
        # On a CPU, flash attention takes 1.5 times as long for a few rows after a long text, and
        # rounds more.
        flash_attention = False
    batch_threads = options.own.get("batch_threads", threads)
    return Settings(kv, flash_attention, threads, batch_threads, bool(options.row_invariant))


# -- whether a row's logits are independent of the other rows of its pass -----------------------
#
# llama.cpp has kernels for single rows that add in another order: for matrices of floats, and for
# attention over many tokens. A token computed together with a copy of itself never uses them.
# K-quants have further kernels by the number of rows, which pairs do not avoid; so it is tested.

_PROMPT_TOKENS, _TEXT_TOKENS = 11, 9
PROBE_CELLS = 32
# How the text is cut into passes; the most likely failures come first.
_CUTS = ((8, 1), (2, 7), (4, 5), (1, 1, 1, 1, 1, 1, 3))


def rows_hold(context: Context) -> bool:
    """Return whether the same tokens give the same bits, however they are cut into passes.

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
