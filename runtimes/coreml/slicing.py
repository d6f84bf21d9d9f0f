"""The slice form: tokens are in the cache in the order of the sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedec.coreml.types import Array
from edgedec.runtimes._static.session import StaticShapeSession
from edgedec.runtimes.coreml.facts import ProgramFacts


class SliceSession(StaticShapeSession):
    """A pending node's slot follows those before it, so that an accepted chain is in place."""

    runtime = "coreml"
    _facts: ProgramFacts

    def _place(self, count: int) -> list[int]:
        begin = self._length + len(self._pending_slots)
        return list(range(begin, begin + count))

    def _room(self) -> int:
        # Rows of padding are written as well, behind the last node.
        return self._facts.slots - self._length - len(self._pending_slots)

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        return {"begin": np.array(slots[:1], np.int32)}

    def _gather(self, path: Sequence[int]) -> list[int]:
        length, rows = self._length, self._facts.moved_rows
        sources = [self._pending_slots[node] for node in path]
        wanted = list(range(length, length + len(path)))
        first = next(
            (i for i, (a, b) in enumerate(zip(sources, wanted, strict=True)) if a != b), None
        )
        for start in range(len(path) if first is None else first, len(path), rows):
            self._move(sources[start : start + rows], wanted[start])
        return wanted

    def _move(self, sources: Sequence[int], to: int) -> None:
        """Copy the tokens of these slots to ``to`` and following; the others stay."""
        rows = self._facts.moved_rows
        begin = min(to, self._facts.slots - rows)
        source = np.arange(begin, begin + rows, dtype=np.int32)
        source[to - begin : to - begin + len(sources)] = sources
        feeds = {"source": source, "begin": np.array([begin], np.int32)}
        self._executor.predict(self._facts.moved, feeds, self._cache, lambda: None)
