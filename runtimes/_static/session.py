"""One sequence over a program of fixed widths; subclasses place its tokens in the cache."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from edgedec.decoding import snapshot
from edgedec.decoding.ranking import Scored
from edgedec.decoding.session import OnChunk, Pass, Want
from edgedec.decoding.session_base import SnapshotSession, check_interrupt, closed
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import SnapshotError
from edgedec.runtimes._static.executor import Array
from edgedec.runtimes._static.model import StaticShapeModel

# Added to the scores of slots that a row does not see.
_HIDDEN = np.float32(-4e4)


class StaticShapeSession(SnapshotSession):
    """Implements ``edgedec.decoding.session.Session``; made by ``StaticShapeModel.open``.

    A pass has as many rows as one of the program's functions; padding rows repeat the last token,
    and no row attends to them. The attention mask is computed here and passed to the function.

    Args:
        model: owner of the program.
        capacity: tokens that fit.

    """

    def __init__(self, model: StaticShapeModel, capacity: int) -> None:
        self._executor = model.executor
        self._cache: Any = self._executor.new_state()
        stop = self._executor.stop_of(self._cache)
        super().__init__(capacity, model.info.vocab_size, model.capabilities, stop)
        self._model, self._facts = model, model.facts
        self.prefill_chunk = model.facts.read_rows
        # Position of the committed token in each slot; -1 if there is none.
        self._held: IntArray = np.full(model.facts.slots, -1, np.int64)
        # Slots of the pending nodes.
        self._pending_slots: list[int] = []

    # -- implemented by a subclass --------------------------------------------------------------

    @abstractmethod
    def _place(self, count: int) -> list[int]:
        """Return slots for this many nodes after the pending ones."""

    @abstractmethod
    def _room(self) -> int:
        """Return the widest pass that can be computed now."""

    @abstractmethod
    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        """Return the inputs that say where a pass writes its rows."""

    @abstractmethod
    def _gather(self, path: Sequence[int]) -> list[int]:
        """Return the slots of a path's nodes, after moving them if necessary."""

    # -- passes ---------------------------------------------------------------------------------

    def _prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None) -> None:
        for chunk in self._chunks(tokens, on_chunk):
            tree = TokenTree.chain(chunk)
            self._pending_slots.clear()
            for start, stop, width in self._widths(0, len(chunk), prefill=True):
                self._pass(tree, start, stop, width, self._reader(width))
            self._hold(self._pending_slots)
            self._pending_slots.clear()

    def _reader(self, width: int) -> str:
        return self._facts.read if width == self._facts.read_rows else f"top_{width}"

    def _score(self, tree: TokenTree, start: int, want: Want) -> Pass:
        del self._pending_slots[start:]  # of a pass that failed
        kind = "logits" if want & Want.LOGITS else "top"
        parts: list[Mapping[str, Array]] = []
        try:
            for first, stop, width in self._widths(start, len(tree)):
                found = self._pass(tree, first, stop, width, f"{kind}_{width}")
                found = {name: rows[: stop - first] for name, rows in found.items()}
                if stop < len(tree):  # the next pass may write over them
                    found = {name: rows.copy() for name, rows in found.items()}
                parts.append(found)
        except BaseException:
            del self._pending_slots[start:]
            raise
        whole = parts[0]
        if len(parts) > 1:
            whole = {name: np.concatenate([part[name] for part in parts]) for name in whole}
        if want & Want.LOGITS:
            return self._scored(start, whole["logits"], want)
        return self._ranked(start, whole["top_0"], whole["top_1"])

    def _scored(self, start: int, logits: FloatArray, want: Want) -> Pass:
        logits[:, self._facts.vocab_used :] = -np.inf
        return Scored(start, logits, self._facts.top_k, want)

    def _ranked(self, start: int, logits: FloatArray, ids: Array) -> Pass:
        """Return the largest logits in the order that sessions promise and devices may not keep."""
        logits = np.where(ids < self._facts.vocab_used, logits, np.float32(-np.inf))
        order = np.lexsort((ids, -logits), axis=-1)
        ranked = np.take_along_axis(ids.astype(np.int64), order, -1)
        return Pass(start, ranked, np.take_along_axis(logits, order, -1), None)

    def _widths(
        self, start: int, stop: int, *, prefill: bool = False
    ) -> Iterator[tuple[int, int, int]]:
        """Yield the passes for some nodes: the first, the end, and how many rows it has."""
        facts = self._facts
        known = sorted({*facts.rows, facts.read_rows}) if prefill else list(facts.rows)
        while start < stop:
            check_interrupt(self._stop)
            room = self._room()
            fitting = [width for width in known if width <= room]
            width = next((each for each in fitting if each >= stop - start), fitting[-1])
            end = min(start + width, stop)
            yield start, end, width
            start = end

    def _pass(
        self, tree: TokenTree, start: int, stop: int, width: int, function: str
    ) -> Mapping[str, Array]:
        """Compute ``nodes[start:stop]``, padded to ``width``; earlier nodes are pending."""
        cache = self._cache
        if cache is None:  # another thread closed the session between two passes of a prompt
            raise closed()
        slots = self._place(stop - start)
        rows = [*range(start, stop), *[stop - 1] * (width - stop + start)]
        positions = np.array([self._length + tree.depths[node] for node in rows])
        feeds = self._written(slots, width)
        self._pending_slots += slots
        feeds["ids"] = np.array([tree.tokens[node] for node in rows], np.int32)
        feeds |= self._angles(positions)
        visible, where = self._visible(tree, start, stop)
        for window in self._facts.windows:
            mask = visible
            if window:
                near = where[None] > positions[: stop - start, None] - window
                mask = visible & near
            feeds[f"bias_{window}" if window else "bias"] = self._bias(mask, slots, width)
        return self._executor.predict(function, feeds, cache, lambda: check_interrupt(self._stop))

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        """Return the attention bias, ``[1, width, slots]``; padding rows repeat the last row's."""
        bias = np.where(mask, np.float32(0), _HIDDEN)
        bias = np.concatenate([bias, np.repeat(bias[-1:], width - len(bias), axis=0)])
        return bias[None]

    def _visible(self, tree: TokenTree, start: int, stop: int) -> tuple[Array, IntArray]:
        """Return which slots each node attends to, ``[nodes, slots]``, and each slot's position."""
        where = self._held.copy()
        slots = np.array(self._pending_slots[:stop])
        where[slots] = self._length + np.array(tree.depths[:stop])
        visible = np.repeat(self._held[None] >= 0, stop - start, axis=0)
        for row, node in enumerate(range(start, stop)):
            if tree.is_chain:
                visible[row, slots[: node + 1]] = True
            else:
                visible[row, slots[tree.path_to(node)]] = True
        return visible, where

    def _angles(self, positions: IntArray) -> dict[str, Array]:
        """Return the inputs that give the functions the positions of rows."""
        feeds: dict[str, Array] = {}
        if self._facts.takes_positions:
            feeds["positions"] = positions.astype(np.int32)
        if self._facts.takes_angles:
            for index, rope in enumerate(self._facts.ropes):
                angles = np.outer(positions.astype(np.float64), rope.frequencies)
                feeds[f"cos_{index}"] = (np.cos(angles) * rope.magnitude).astype(np.float32)
                feeds[f"sin_{index}"] = (np.sin(angles) * rope.magnitude).astype(np.float32)
        return feeds

    # -- committing and going back --------------------------------------------------------------

    def _hold(self, slots: Sequence[int]) -> None:
        """Note the slots of tokens that are committed after the others."""
        self._held[list(slots)] = np.arange(self._length, self._length + len(slots))

    def _keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        slots = self._gather(path)
        self._pending_slots.clear()
        self._hold(slots)

    def _cut(self, length: int) -> None:
        self._held[self._held >= length] = -1
        self._pending_slots.clear()

    def _copy(self, length: int) -> StaticShapeSession:
        other = type(self)(self._model, self.capacity)
        self._executor.write(other._cache, self._executor.read(self._cache))
        other._held[:] = np.where(self._held < length, self._held, -1)
        return other

    # -- saving ---------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        return self._model.fingerprint

    def _slots_in_order(self) -> IntArray:
        """Return the slots of the committed tokens, in the order of the text."""
        taken = np.flatnonzero(self._held >= 0)
        return taken[np.argsort(self._held[taken])]

    def _state_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float16 if self._executor.value_bytes == 2 else np.float32)

    def _state_shape(self, length: int) -> tuple[int, ...]:
        entries, heads, _, width = self._facts.cache
        return entries, heads, length, width

    def _state_bytes(self, length: int) -> int:
        return int(np.prod(self._state_shape(length))) * self._executor.value_bytes

    def _state(self) -> snapshot.Payload:
        rows = self._executor.read(self._cache)[:, :, self._slots_in_order()]
        return [rows.astype(self._state_dtype(), copy=False).tobytes()]

    def _most_bytes(self) -> int:
        return self._state_bytes(self.capacity)

    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        if len(payload) != self._state_bytes(length):
            raise SnapshotError("the saved state is damaged: its length is not that of its bytes")
        rows = snapshot.numbers(payload, self._state_dtype()).reshape(self._state_shape(length))
        cache = np.zeros(self._facts.cache, self._state_dtype())
        cache[:, :, :length] = rows
        self._executor.write(self._cache, cache)
        self._held[:] = -1
        self._held[:length] = np.arange(length)
        self._pending_slots.clear()
        return length

    def _release(self) -> None:
        self._executor.release(self._cache)
        self._cache = None


class FreeSlots(StaticShapeSession):
    """A session that places tokens in any slots of the cache and tracks them on the host.

    A commit moves nothing: the slots of dropped nodes are free for the next ones.
    """

    def _place(self, count: int) -> list[int]:
        taken = self._held >= 0
        taken[self._pending_slots] = True
        found: list[int] = np.flatnonzero(~taken)[:count].tolist()
        return found

    def _room(self) -> int:
        return self._facts.slots  # rows of padding are written nowhere

    def _gather(self, path: Sequence[int]) -> list[int]:
        return [self._pending_slots[node] for node in path]
