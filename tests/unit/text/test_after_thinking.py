"""A budget ends the thinking, and a grammar follows the answer alone."""

from __future__ import annotations

import numpy as np
import pytest
from thinking_models import MANNERS

from edgedec.testing import TableConstraint
from edgedec.text.after_thinking import AfterThinking, Rules
from edgedec.text.thinking import Phase, Place, marks_of
from edgedec.text.tokenizer import Tokenizer

# " answer" after "The", or twice that, then an end.
WORDS = ("The", " answer")


class Turn:
    """A model's tokens by name, and constraints of its turns."""

    def __init__(self, manner: str) -> None:
        self.tokenizer: Tokenizer = MANNERS[manner].tokenizer()
        self.eos = self.tokenizer.eos_id
        assert self.eos is not None

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def grammar(self) -> TableConstraint:
        the, answer = (self.ids(word)[0] for word in WORDS)
        table = {0: {the: 1}, 1: {answer: 2}, 2: {the: 1, self.eos: 3}}
        return TableConstraint(table, self.tokenizer.vocab_size)  # type: ignore[arg-type]

    def after(
        self, budget: int | None, phase: Phase = Phase.START, *, grammar: bool = False
    ) -> AfterThinking:
        marks = marks_of(self.tokenizer)
        assert marks is not None
        size, eos = self.tokenizer.vocab_size, (self.eos,)
        rules = Rules(self.tokenizer, marks, size, eos, budget)  # type: ignore[arg-type]
        return AfterThinking(rules, Place(phase), self.grammar() if grammar else None)


@pytest.fixture
def qwen() -> Turn:
    return Turn("qwen")


def test_the_budget_forces_the_end(qwen: Turn) -> None:
    after = qwen.after(2)
    thought = qwen.ids("<think> first then")
    end = qwen.ids("</think>\n\n")
    assert after.forced([], 9) == []
    assert after.allowed(thought[:2]) is None  # free: one token of thinking so far
    assert after.forced(thought, 9) == end
    assert after.forced(thought, 1) == end[:1]
    mask = after.allowed(thought)
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == end[:1]
    assert after.allows(thought, end[0])
    assert not after.allows(thought, qwen.ids(" so")[0])
    assert after.forced([*thought, qwen.ids(" so")[0]], 9) == []
    assert after.forced([*thought, *end], 9) == []
    assert after.allowed([*thought, *end]) is None


def test_a_shorter_thinking_ends_by_itself(qwen: Turn) -> None:
    after = qwen.after(3)
    after.push(qwen.ids("<think> first</think>"))
    assert after.forced([], 9) == []
    assert after.allowed(qwen.ids("The answer is 42 first then so")) is None


def test_an_answer_without_thinking_is_free(qwen: Turn) -> None:
    after = qwen.after(0)
    assert after.forced([], 9) == []
    assert after.forced(qwen.ids("The answer"), 9) == []


def test_what_is_pushed_is_as_what_is_looked_at(qwen: Turn) -> None:
    path = qwen.ids("<think> first then</think>\n\nThe answer")
    looking, pushed = qwen.after(2, grammar=True), qwen.after(2, grammar=True)
    for index, token in enumerate(path):
        mine, theirs = pushed.allowed([]), looking.allowed(path[:index])
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert np.array_equal(mine, theirs)
            assert mine[token]
        assert pushed.forced([], 5) == looking.forced(path[:index], 5)
        twin = pushed.twin()
        pushed.push([token])
        assert twin.forced([], 5) == looking.forced(path[:index], 5)


def test_a_grammar_follows_the_answer_alone(qwen: Turn) -> None:
    after = qwen.after(None, grammar=True)
    think, the = qwen.ids("<think>")[0], qwen.ids("The")[0]
    first = after.allowed([])
    assert first is not None
    assert np.flatnonzero(first).tolist() == sorted([think, the])
    thinking = after.allowed([think])
    assert thinking is not None
    assert thinking.sum() == len(thinking) - 1  # all but the end of the text
    assert not after.allows([think], qwen.eos)  # type: ignore[arg-type]
    # Closed by the model: the gap is forced, and then the grammar's only choice.
    path = qwen.ids("<think> first</think>")
    assert after.forced(path, 9) == qwen.ids("\n\nThe answer")
    after.push([*path, *qwen.ids("\n\nThe answer"), *qwen.ids("The")])
    assert after.forced([], 1) == qwen.ids(" answer")
    assert after.allowed(qwen.ids("is")) is None  # refused


def test_an_answer_at_once_follows_the_grammar(qwen: Turn) -> None:
    after = qwen.after(None, grammar=True)
    after.push(qwen.ids("The"))
    assert after.forced([], 9) == qwen.ids(" answer")


def test_a_grammar_and_a_budget(qwen: Turn) -> None:
    after = qwen.after(1, Phase.THINKING, grammar=True)
    assert after.forced(qwen.ids(" first"), 9) == qwen.ids("</think>\n\nThe answer")


def test_channels_are_forced_as_a_whole() -> None:
    turn = Turn("harmony")
    final = turn.ids("<|end|><|start|>assistant<|channel|>final<|message|>")
    path = turn.ids("<|channel|>analysis<|message|> first then")
    assert turn.after(2).forced(path, 9) == final
    after = turn.after(2, grammar=True)
    assert after.forced([], 9) == turn.ids("<|channel|>")
    assert after.forced(path, 9) == [*final, *turn.ids("The answer")]
    # Closed by the model itself: the header of the answer is forced.
    closed = turn.ids("<|channel|>analysis<|message|> first<|end|>")
    assert after.forced(closed, 9) == [*final[1:], *turn.ids("The answer")]


def test_the_end_of_spelled_tags_is_forced_and_noticed() -> None:
    turn = Turn("spelled")
    after = turn.after(3, Phase.THINKING)
    path = turn.ids(" first then so")
    end = turn.ids("</think>")
    assert len(end) > 1
    assert after.forced(path, 99) == end
    after.push([*path, *end])
    assert after.forced(turn.ids("The answer is 42 first then so"), 9) == []


def test_a_text_that_ended_forces_nothing(qwen: Turn) -> None:
    after = qwen.after(1)
    after.push([*qwen.ids("<think>"), qwen.eos])  # type: ignore[list-item]
    assert after.forced([], 9) == []
    assert after.allowed([]) is None
