"""The input of a pass: arrays that are allocated once and filled through numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.runtimes.llamacpp.library import Params, api


class Batch:
    """Input arrays of one ``llama_decode``.

    Args:
        tokens: most tokens of a pass.
        sequences: most sequences a token may belong to.

    """

    def __init__(self, tokens: int, sequences: int) -> None:
        self._tokens = np.zeros(tokens, np.int32)
        self._positions = np.zeros(tokens, np.int32)
        self._steps = np.arange(tokens, dtype=np.int32)
        # Tokens of chains belong to sequence 0; the sequences of a tree's nodes are set each time.
        self._one = np.ones(tokens, np.int32)
        self._counts = np.ones(tokens, np.int32)
        self._members = np.zeros((tokens, sequences), np.int32)
        self._zero = np.zeros(1, np.int32)
        self._to_zero = np.full(tokens, self._zero.ctypes.data, np.uintp)
        row = self._members.strides[0]
        self._to_members = self._members.ctypes.data + row * np.arange(tokens, dtype=np.uintp)
        self._all, self._none = np.ones(tokens, np.int8), np.zeros(tokens, np.int8)
        self._silent = self._struct(self._one, self._to_zero, self._none)
        self._chain = self._struct(self._one, self._to_zero, self._all)
        self._tree = self._struct(self._counts, self._to_members, self._all)

    def chain(self, tokens: Sequence[int], position: int, *, head: bool) -> Params:
        """Return a batch of consecutive tokens from ``position`` on; ``head``: with logits."""
        count = len(tokens)
        self._tokens[:count] = tokens
        np.add(self._steps[:count], position, out=self._positions[:count])
        batch = self._chain if head else self._silent
        batch.n_tokens = count
        return batch

    def branches(
        self, tokens: Sequence[int], positions: Sequence[int], members: Sequence[Sequence[int]]
    ) -> Params:
        """Return a batch of a tree's nodes, each with its sequences; all with logits."""
        count = len(tokens)
        self._tokens[:count] = tokens
        self._positions[:count] = positions
        for row, sequences in enumerate(members):
            self._counts[row] = len(sequences)
            self._members[row, : len(sequences)] = sequences
        self._tree.n_tokens = count
        return self._tree

    def _struct(
        self, counts: npt.NDArray[Any], members: npt.NDArray[Any], outputs: npt.NDArray[Any]
    ) -> Params:
        batch: Params = api.llama_batch()
        for name, array in (
            ("token", self._tokens),
            ("pos", self._positions),
            ("n_seq_id", counts),
            ("seq_id", members),
            ("logits", outputs),
        ):
            kind = dict(api.llama_batch._fields_)[name]
            setattr(batch, name, ctypes.cast(array.ctypes.data, kind))
        return batch
