"""A constraint that leaves the thinking free, ends it at a budget, and holds for the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgedec.decoding.constraint import BoolArray, Constraint
from edgedec.text.thinking import Marks, Phase, Place, text_of
from edgedec.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _State:
    """What decides the next tokens.

    Attributes:
        thought: tokens of the thinking so far.
        pending: tokens that come next for certain.
        answer: number of the path's tokens before the answer; None if there is none yet.

    """

    place: Place
    thought: int = 0
    pending: tuple[int, ...] = ()
    answer: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of one model's thinking.

    Attributes:
        vocab_size: columns of a logits row.
        budget: most tokens of thinking, after which its end is forced; None is no limit.

    """

    tokenizer: Tokenizer
    marks: Marks
    vocab_size: int
    eos_ids: Collection[int]
    budget: int | None = None


class AfterThinking:
    """A ``Constraint`` of a turn that may begin with thinking.

    The thinking is free until it ends, by the model's own mark or at the budget, which forces the
    mark. A grammar then follows the answer alone, and the text does not end before it. With marks
    that are not tokens it is uncertain where an answer begins: a budget of 0 goes with a grammar.

    Args:
        place: where the turn begins.
        grammar: of the answer; None leaves it free.

    """

    def __init__(self, rules: Rules, place: Place, grammar: Constraint | None = None) -> None:
        self._rules, self._grammar = rules, grammar
        self._state: _State | None = self._settled(_State(place))

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        state = self._after(path)
        if state is None:
            return None
        if state.answer is not None:
            return None if self._grammar is None else self._grammar.allowed(path[state.answer :])
        if state.pending:
            return self._mask((state.pending[0],))
        if self._grammar is None:
            return None
        if state.place.phase is Phase.START:
            first, opening = self._grammar.allowed(()), self._rules.marks.opening
            return first if first is None or opening is None else first | self._mask((opening,))
        return ~self._mask(self._rules.eos_ids)

    def allows(self, path: Sequence[int], token: int) -> bool:
        state = self._after(path)
        if state is not None and state.answer is not None and self._grammar is not None:
            return self._grammar.allows(path[state.answer :], token)
        if state is None:
            return False
        mask = self.allowed(path)
        return mask is None or bool(mask[token])

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        found: list[int] = []
        while len(found) < most and (state := self._after([*path, *found])) is not None:
            if state.answer is not None:
                if self._grammar is not None:
                    rest = [*path, *found][state.answer :]
                    found += self._grammar.forced(rest, most - len(found))
                break
            if not state.pending:
                break
            found.append(state.pending[0])
        return found

    def push(self, tokens: Sequence[int]) -> None:
        state = self._after(tokens)
        if self._grammar is not None and state is not None and state.answer is not None:
            self._grammar.push(tokens[state.answer :])
        answering = state is not None and state.answer is not None
        self._state = replace(state, answer=0) if state and answering else state

    def twin(self) -> AfterThinking:
        other = AfterThinking(self._rules, Place(Phase.START))
        other._grammar = None if self._grammar is None else self._grammar.twin()
        other._state = self._state
        return other

    def _mask(self, tokens: Collection[int]) -> BoolArray:
        mask = np.zeros(self._rules.vocab_size, dtype=np.bool_)
        mask[[token for token in tokens if token < len(mask)]] = True
        return mask

    def _after(self, path: Sequence[int]) -> _State | None:
        """Return the state after a path; None if that is refused or ends the text."""
        state = self._state
        for index, token in enumerate(path):
            if state is None or state.answer is not None:
                break
            state = self._step(state, token, index)
        return state

    def _step(self, state: _State, token: int, index: int) -> _State | None:
        rules = self._rules
        before = state.place.phase
        if (state.pending and token != state.pending[0]) or token in rules.eos_ids:
            return None
        name = rules.marks.ids.get(token)
        if before is Phase.START and name is None and self._grammar is not None:
            return replace(state, answer=index)  # without any thinking
        text = name or text_of(rules.tokenizer, [token])
        place, _ = rules.marks.read(state.place, text, mark=name is not None)
        pending, thought = state.pending[1:], state.thought + (before is Phase.THINKING)
        closed = before is Phase.THINKING and place.phase is not Phase.THINKING
        if closed and not state.pending and self._grammar is not None:
            pending = rules.marks.gap
        return self._settled(_State(place, thought, pending), index + 1)

    def _settled(self, state: _State, index: int = 0) -> _State:
        """Return the state with what its place entails: the answer, or tokens that must come."""
        marks, budget = self._rules.marks, self._rules.budget
        if state.pending:
            return state
        starts = state.place.phase is Phase.START and self._grammar is not None
        if starts and marks.always and marks.opening is not None:
            return replace(state, pending=(marks.opening,))
        if state.place.phase is Phase.ANSWER:
            return replace(state, answer=index)
        if state.place.phase is Phase.THINKING and budget is not None and state.thought >= budget:
            return replace(state, pending=(*marks.close, *marks.gap))
        return state
