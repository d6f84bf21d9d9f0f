"""Loaded weights on llama.cpp and the facts that their sessions share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from edgedec._support.fields import one_line
from edgedec.decoding.session import Capabilities, ModelInfo, Rollback
from edgedec.errors import StateError
from edgedec.runtimes.llamacpp.check import shows_states
from edgedec.runtimes.llamacpp.context import CHUNK, Context, Settings, head_rows
from edgedec.runtimes.llamacpp.facts import (
    Facts,
    eos_ids,
    fingerprint,
    first_padding,
    least_cells,
    longest_text,
)
from edgedec.runtimes.llamacpp.library import StopFlag, Weights, api, has_states
from edgedec.runtimes.llamacpp.taps import may_show

_TOP_K = 8


class LoadedWeights:
    """Weights and the facts that all sessions over them share.

    Attributes:
        info: facts about the model.
        capabilities: features of its sessions.
        fingerprint: identifies it in saved states: its weights, and the types of keys and values.
        first_padding: number of tokens before the padding of the vocabulary.
        state_bytes: size of a saved state without its tokens.

    """

    def __init__(self, file: Path, weights: Weights, settings: Settings, facts: Facts) -> None:
        # At load, since the file may be replaced before a state is saved.
        types = settings.kv if settings.values is None else f"{settings.kv}/{settings.values}"
        kinds = f"{types} {settings.flash_attention}"
        self.fingerprint = f"{fingerprint(file)} {kinds} {api.llama_version().decode()}"
        self._weights: Weights | None = weights
        self._settings, self._file = settings, file
        self._architecture = weights.text("general.architecture")
        pointer, vocab = weights.pointer, weights.vocab
        vocab_size = int(api.llama_vocab_n_tokens(vocab))
        self.first_padding = first_padding(weights)
        self.state_bytes = facts.state_bytes
        any_length = facts.rollback is Rollback.ANY
        self.capabilities = Capabilities(
            branches=head_rows(vocab_size, settings) if any_length else 1,
            rollback=facts.rollback,
            rejected=None if any_length else settings.kept,
            top_k=min(_TOP_K, vocab_size),
            batch_invariant=settings.exact,
            snapshot=True,
        )
        self.info = ModelInfo(
            name=one_line(weights.text("general.name") or file.stem),
            vocab_size=vocab_size,
            eos_ids=eos_ids(weights),
            max_context=longest_text(weights),
            kv_bytes_per_token=facts.kv_bytes_per_token,
            weight_bytes=int(api.llama_model_size(pointer)),
            threads=settings.threads,
            scratch_bytes_per_token=_scratch_bytes(settings, int(api.llama_model_n_head(pointer))),
            state_bytes=0 if any_length else (1 + settings.kept) * facts.state_bytes,
        )

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

    def show(self, layers: Sequence[int]) -> None:
        """See ``edgedec.decoding.session.Showing``; for sessions that are opened later.

        Without effect if this llama.cpp has no such functions, or the architecture does not show
        its streams.
        """
        layers, count = tuple(layers), int(api.llama_model_n_layer(self.weights.pointer))
        if not has_states() or not may_show(self._architecture, count, layers):
            return
        if shows_states(self._file, layers):
            self._settings = dataclasses.replace(self._settings, taps=layers)
            self.capabilities = dataclasses.replace(self.capabilities, taps=layers)

    def close(self) -> None:
        """Release the weights, which are freed once all sessions are closed as well."""
        self._weights = None


def _scratch_bytes(settings: Settings, heads: int) -> int:
    """Return the attention memory of a prefill chunk per cached token, in bytes.

    Scores are computed for all heads at once, and converted to f16 if values are f16. Flash
    attention stores no scores; the mask is always stored.
    """
    scores = 0 if settings.flash_attention else heads * (6 if settings.kv == "f16" else 4)
    return CHUNK * (scores + 4)
