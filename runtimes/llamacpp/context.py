"""Wraps a ``llama_context``: a cache, a buffer for logits, and passes over them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray
from edgedec.errors import CapacityExceeded, Interrupted, PassFailed, SessionError
from edgedec.runtimes.llamacpp.library import (
    Params,
    Pointer,
    StopFlag,
    Weights,
    api,
    forget,
    keeps_states,
    reason,
    shown_states,
)


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


State = npt.NDArray[np.uint8]
CHUNK = 128
# The buffer for logits is allocated and written when a context is created: a row for each sequence,
# since llama.cpp ties the two. Every pass compares all sequences with each other: 64 cost 5
# microseconds, 128 cost 15.
_LEAST_ROWS, _MOST_ROWS = 32, 64
_LOGITS_BYTES = 32 << 20
_CELLS = 256
_ABORTED, _NO_SLOT = 2, 1
KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # ggml_type


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings shared by all contexts of a model.

    Attributes:
        kv: type of keys and values, a key of ``KV_TYPES``.
        flash_attention: None lets llama.cpp choose.
        threads: threads of a pass over one token.
        batch_threads: threads of a pass over several tokens.
        paired: never compute a token alone; see ``rows``.
        fours: compute three tokens as four, which is faster with repacked weights.
        values: type of values where it is not that of keys.
        most_rows: most rows of logits of one pass; None is as many as the buffer has.
        exact: a row's logits do not depend on the other rows of its pass.
        sequences: most sequences; None is as many as rows. A recurrent model has a state for each.
        kept: states of earlier tokens that a recurrent model is to keep, of each sequence.
        taps: layers before which passes show the residual stream.

    """

    kv: str
    flash_attention: bool | None
    threads: int
    batch_threads: int
    paired: bool = False
    fours: bool = False
    values: str | None = None
    most_rows: int | None = None
    exact: bool = False
    sequences: int | None = None
    kept: int = 0
    taps: tuple[int, ...] = ()


def head_rows(vocab_size: int, settings: Settings) -> int:
    """Return the most rows of logits of one decode."""
    room = max(_LEAST_ROWS, min(_MOST_ROWS, _LOGITS_BYTES // (4 * vocab_size)))
    return min(room, settings.most_rows or room)


def cells_for(tokens: int) -> int:
    """Return the cells of a context for ``tokens`` tokens: one more, rounded up to blocks."""
    return -(-(tokens + 1) // _CELLS) * _CELLS


class _Owner:
    """Frees a llama_context when the Context and all views of its logits are gone."""

    def __init__(self, pointer: Pointer, weights: Weights, stop: StopFlag) -> None:
        weakref.finalize(self, _free, pointer, weights, stop)


def _free(pointer: Pointer, weights: Weights, stop: StopFlag) -> None:
    """Free a context; the weights and the flag are arguments so that they outlive it."""
    weights.call.post(api.llama_free, pointer)


class Context:
    """A cache for one sequence, freed with the last reference to it or to a view of its logits.

    Args:
        weights: the model's weights.
        settings: settings of all contexts of the model.
        cells: tokens that fit.
        stop: stops a running decode; None creates one.

    Attributes:
        cells: as given.
        stop: stops a running decode.
        vocab_size: columns of a row of logits.
        rows: most rows of logits of one decode, and most sequences unless the settings say.
        exact: as in the settings.
        kept: states before the current one that a recurrent model keeps of a pass, each a token
            earlier; 0 if its graph, or this llama.cpp, keeps none.

    Raises:
        SessionError: llama.cpp could not create it, usually for lack of memory, or the model has
            no cache.

    """

    def __init__(
        self, weights: Weights, settings: Settings, cells: int, stop: StopFlag | None = None
    ) -> None:
        self.weights = weights
        self.cells = cells
        self.stop = stop or StopFlag()
        self.vocab_size = int(api.llama_vocab_n_tokens(weights.vocab))
        self.rows, self.exact = head_rows(self.vocab_size, settings), settings.exact
        params = _params(settings, cells, self.rows)
        self.stop.put_into(params)
        forget()
        self._call = weights.call
        with self._call.whole_graphs():
            pointer = self._call(api.llama_init_from_model, weights.pointer, params)
        if not pointer:
            raise PassFailed(
                f"llama.cpp cannot open a context of {cells} tokens: {reason()}:"
                " give a smaller --max-context"
            )
        self.pointer = pointer
        self._owner = _Owner(pointer, weights, self.stop)
        self.memory = api.llama_get_memory(pointer)
        if not self.memory:
            raise SessionError("it has no cache, so it is not a decoder")
        self.kept = int(api.llama_n_rs_seq(pointer)) if settings.kept and keeps_states() else 0
        if settings.taps:
            shown_states().show(pointer, settings.taps)
        self.batch = Batch(CHUNK, self.rows)
        self._settings = settings
        self._address = 0
        self._logits: FloatArray = np.zeros((0, 0), np.float32)

    # -- passes ---------------------------------------------------------------------------------

    def decode(self, batch: Params) -> None:
        """Compute a batch into the cache.

        Raises:
            Interrupted: ``stop`` was set; the batch may be partly written.
            PassFailed: llama.cpp failed and may have written parts of the batch.

        """
        forget()
        code = self._call(api.llama_decode, self.pointer, batch)
        if code == 0:
            return
        if code == _ABORTED:
            self.stop.clear()
            raise Interrupted("interrupted")
        if code == _NO_SLOT:
            raise CapacityExceeded(f"llama.cpp has no cells left for {batch.n_tokens} tokens")
        raise PassFailed(f"llama.cpp could not run a pass: {reason()}")

    def run(self, tokens: Sequence[int], position: int, *, head: bool) -> None:
        """Compute consecutive tokens into sequence 0; ``head``: with logits.

        Raises:
            Interrupted, PassFailed: as ``decode``.

        """
        count, settings = len(tokens), self._settings
        if (count == 1 and settings.paired) or (count == 3 and settings.fours):
            self.decode(self.batch.chain([*tokens, tokens[-1]], position, head=head))
            self.remove(0, position + count)
        else:
            self.decode(self.batch.chain(tokens, position, head=head))

    def logits(self, count: int) -> FloatArray:
        """Return the rows of the last decode, ``[count, vocab]``; valid until the next.

        The array keeps the context alive, so reading it late is safe.
        """
        address = ctypes.addressof(self._call(api.llama_get_logits, self.pointer).contents)
        if address != self._address:
            size = self.rows * self.vocab_size
            block: Any = (ctypes.c_float * size).from_address(address)
            block.owner = self._owner
            self._logits = np.frombuffer(block, np.float32).reshape(self.rows, -1)
            self._address = address
        return self._logits[:count]

    def states(self, count: int) -> FloatArray:
        """Return the streams of the last decode's first tokens, ``[count, taps * hidden]``."""
        hidden = int(api.llama_model_n_embd(self.weights.pointer))
        rows = shown_states().rows
        found: FloatArray = self._call(rows, self.pointer, self._settings.taps, count, hidden)
        return found

    # -- the cache ------------------------------------------------------------------------------

    def remove(self, sequence: int, start: int, end: int = -1) -> bool:
        """Remove a sequence (-1: all) from the tokens at positions ``start`` to ``end``.

        Returns False, without any change, if this kind of cache cannot.
        """
        return bool(api.llama_memory_seq_rm(self.memory, sequence, start, end))

    def share(self, source: int, target: int, start: int, end: int) -> None:
        """Let ``target`` also hold the tokens of ``source`` from ``start`` to ``end``."""
        api.llama_memory_seq_cp(self.memory, source, target, start, end)

    def repeat(self, times: int) -> None:
        """Have sequence 0 hold its tokens ``times`` more, in cells of their own, as they are.

        Raises:
            SessionError: llama.cpp refuses it.

        """
        state, other = self.sequence(0), 1
        for _ in range(times):
            if not self.put_sequence(state, other):
                raise SessionError(f"llama.cpp could not copy a sequence: {reason()}")
            self.share(other, 0, 0, -1)
            self.remove(other, 0)

    def sequence(self, source: int, *, recurrent: bool = False) -> State:
        """Return the state of a sequence, or its recurrent part, as bytes; or SessionError."""
        forget()
        size = self._call(api.llama_state_seq_get_size_ext, self.pointer, source, recurrent)
        data = np.empty(size, np.uint8)
        get = api.llama_state_seq_get_data_ext
        written = self._call(get, self.pointer, _bytes_at(data), data.size, source, recurrent)
        if written != data.size:
            raise SessionError(f"llama.cpp could not write a sequence: {reason()}")
        return data

    def put_sequence(self, data: State, target: int, *, recurrent: bool = False) -> bool:
        """Replace a sequence, or its recurrent part; False if llama.cpp refuses it."""
        forget()
        put = api.llama_state_seq_set_data_ext
        return bool(self._call(put, self.pointer, _bytes_at(data), data.size, target, recurrent))

    def keep_only(self, sequence: int) -> None:
        """Remove all tokens of other sequences."""
        api.llama_memory_seq_keep(self.memory, sequence)

    def clear(self) -> None:
        """Remove all tokens."""
        api.llama_memory_clear(self.memory, False)

    def span(self, sequence: int = 0) -> tuple[int, int]:
        """Return the first and the last position of a sequence; (-1, -1) if it is empty."""
        return (
            int(api.llama_memory_seq_pos_min(self.memory, sequence)),
            int(api.llama_memory_seq_pos_max(self.memory, sequence)),
        )

    # -- saving and restoring -------------------------------------------------------------------

    def state(self) -> State:
        """Return the whole cache, including pending nodes, as bytes; or SessionError."""
        forget()
        data = np.empty(self._call(api.llama_state_get_size, self.pointer), np.uint8)
        get = api.llama_state_get_data
        written = self._call(get, self.pointer, _bytes_at(data), data.size)
        if written != data.size:
            raise SessionError(f"llama.cpp could not write its state: {reason()}")
        return data

    def put(self, data: State) -> bool:
        """Restore a whole state with its sequences; False if llama.cpp refuses it."""
        forget()
        put = api.llama_state_set_data
        read = self._call(put, self.pointer, _bytes_at(data), data.size)
        return bool(read == data.size)

    def empty(self, cells: int) -> Context:
        """Return an empty context of ``cells`` cells with the same stop flag."""
        return Context(self.weights, self._settings, cells, self.stop)

    def larger(self, cells: int) -> Context:
        """Return a context of more cells with the same contents and stop flag; or SessionError."""
        other = self.empty(cells)
        if not other.put(self.state()):
            raise SessionError(f"llama.cpp could not move its state: {reason()}")
        return other

    def restore(self, data: State, length: int) -> bool:
        """Restore the first ``length`` tokens of sequence 0 of a state.

        Returns False, with an empty cache, if llama.cpp refuses it or its length is wrong.
        """
        good = self.put(data)
        if good and length:
            if self.span()[1] >= length:  # the rest belonged to a pending tree
                good = self.remove(-1, length)
                self.keep_only(0)
            good = good and self.span()[1] == length - 1
        if not good or not length:
            self.clear()
        return good


def _bytes_at(data: State) -> Params:
    return ctypes.cast(data.ctypes.data, ctypes.POINTER(ctypes.c_uint8))


def _params(settings: Settings, cells: int, rows: int) -> Params:
    params: Params = api.llama_context_default_params()
    # llama.cpp rounds the context up as well, but limits batches to the unrounded size, which is
    # too small for the rows that it then reserves.
    params.n_ctx = cells_for(cells)
    params.n_batch = params.n_ubatch = CHUNK
    params.n_seq_max, params.n_outputs_max = settings.sequences or rows, rows
    if settings.kept and keeps_states():
        params.n_rs_seq = settings.kept
    params.n_threads, params.n_threads_batch = settings.threads, settings.batch_threads
    params.type_k, params.type_v = KV_TYPES[settings.kv], KV_TYPES[settings.values or settings.kv]
    chosen = settings.flash_attention
    params.flash_attn_type = -1 if chosen is None else int(chosen)
    # Branches share the cells of their common path. Tokens that leave a sliding window are kept,
    # since rolling back a rejected draft brings them into it again.
    params.kv_unified = params.swa_full = True
    params.no_perf = True
    return params
