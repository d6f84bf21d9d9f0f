"""A constraint that is a table: an automaton over tokens, for tests of the decoding loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgedec.decoding.constraint import BoolArray
from edgedec.errors import InputError

Table = Mapping[int, Mapping[int, int]]


class TableConstraint:
    """An automaton: ``table[state][token]`` is the next state. A text begins in state 0.

    Args:
        table: a state without an entry is the end of the text.
        vocab_size: columns of a logits row.

    """

    def __init__(self, table: Table, vocab_size: int) -> None:
        self._table, self._vocab_size = table, vocab_size
        self.state = 0

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        state = self._after(path)
        if state is None or state not in self._table:
            return None
        mask = np.zeros(self._vocab_size, dtype=np.bool_)
        mask[list(self._table[state])] = True
        if not mask.any():
            raise InputError(f"the table allows nothing in state {state}")
        return mask

    def allows(self, path: Sequence[int], token: int) -> bool:
        state = self._after(path)
        return state is not None and token in self._table.get(state, {})

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        found: list[int] = []
        while len(found) < most:
            state = self._after([*path, *found])
            if state is None or len(self._table.get(state, {})) != 1:
                break
            found += self._table[state]
        return found

    def push(self, tokens: Sequence[int]) -> None:
        state = self._after(tokens)
        assert state is not None, f"refused tokens in the text: {list(tokens)}"
        self.state = state

    def twin(self) -> TableConstraint:
        other = TableConstraint(self._table, self._vocab_size)
        other.state = self.state
        return other

    def _after(self, path: Sequence[int]) -> int | None:
        state: int | None = self.state
        for token in path:
            state = None if state is None else self._table.get(state, {}).get(token)
        return state
