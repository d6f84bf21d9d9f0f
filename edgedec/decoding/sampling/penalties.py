"""Applies bias and penalties, for the text so far and for the path that leads to a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.tree import FloatArray, IntArray


class Occurrences:
    """Number of occurrences of each token, as parallel ids and counts for sparse updates."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids: IntArray = np.zeros(64, dtype=np.int64)
        self._counts: FloatArray = np.zeros(64, dtype=np.float32)

    def add(self, tokens: Sequence[int]) -> None:
        """Count these tokens."""
        for token in tokens:
            slot = self._slots.get(token)
            if slot is None:
                slot = self._slots[token] = len(self._slots)
                if slot == len(self._ids):
                    self._ids = np.resize(self._ids, 2 * slot)
                    self._counts = np.resize(self._counts, 2 * slot)
                self._ids[slot], self._counts[slot] = token, 0
            self._counts[slot] += 1

    def remove(self, tokens: Sequence[int]) -> None:
        """Undo ``add(tokens)``; last added, first removed."""
        for token in reversed(tokens):
            slot = self._slots[token]
            self._counts[slot] -= 1
            if self._counts[slot] == 0:
                del self._slots[token]

    @property
    def ids(self) -> IntArray:
        """Distinct tokens, ``[n]``; a view."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> FloatArray:
        """Their counts, ``[n]`` float32; a view."""
        return self._counts[: len(self._slots)]


class Penalties:
    """Logit bias and penalties of one request: bias first, penalties on the sum."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self._repetition = np.float32(params.repetition_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int64)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float32)
        self._active = params.penalised
        self._all = Occurrences()
        self._generated = Occurrences()
        if self._active:
            self._all.add(prompt)

    def push(self, tokens: Sequence[int]) -> None:
        """Add these tokens to the generated text."""
        if self._active:
            self._all.add(tokens)
            self._generated.add(tokens)

    def applied(self, logits: FloatArray, path: Sequence[int]) -> FloatArray:
        """Return a changed copy of a row, ``[vocab]``, as if ``path`` were already generated."""
        row: FloatArray = logits.copy()
        row[self._bias_ids] += self._bias
        if not self._active:
            return row
        self.push(path)
        if self._repetition != 1:
            ids = self._all.ids
            seen = row[ids]
            row[ids] = np.where(seen > 0, seen / self._repetition, seen * self._repetition)
        generated = self._generated
        row[generated.ids] -= self._presence + self._frequency * generated.counts
        self._all.remove(path)
        self._generated.remove(path)
        return row
