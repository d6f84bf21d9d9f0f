"""Several texts at once: each conversation goes on where it was, whatever came between."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kinds import each_once
from test_prefix_reuse import Reader, built, own, tokens

from edgedec.decoding import session_pool
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.sampling import SamplingParams
from edgedec.testing import decoding

SYSTEM = [n % 16 for n in range(40)]


def engine(conversations: int, drafter: str = "model") -> tuple[Engine, Reader]:
    model = Reader()
    made = built(drafter, model)
    made.pool.limit = conversations
    return made, model


class TestThreeConversations:
    def test_each_reads_only_what_is_new(self) -> None:
        made, _ = engine(3)
        talks = [[*SYSTEM, topic, 9] for topic in (1, 2, 3)]
        read = []
        for _ in range(3):
            for index, talk in enumerate(talks):
                found, metrics = tokens(made, talk, 30)
                assert found == own(talk, 30)
                read.append(len(talk) - 1 - metrics.reused_tokens)
                talks[index] = [*talk, *found, 5, 6]
        # The system prompt once, then each topic; later turns: the last token of an answer, which
        # was never computed, and what is new, but for the root.
        assert read == [41, 1, 1, *[2] * 6]
        assert len(made.pool) == 3

    def test_with_one_session_the_others_are_read_again(self) -> None:
        made, _ = engine(1)
        talks = [[*SYSTEM, topic, 9] for topic in (1, 2)]
        for index, talk in enumerate(talks):
            talks[index] = [*talk, *tokens(made, talk)[0], 5]
        assert tokens(made, talks[0])[1].reused_tokens == len(SYSTEM)
        assert len(made.pool) == 1


def test_the_one_used_longest_ago_makes_room() -> None:
    made, _ = engine(2)
    first, second, third = ([topic] * 30 for topic in (1, 2, 3))
    for text in (first, second, first, third):
        tokens(made, text)
    assert tokens(made, [*first, 7])[1].reused_tokens >= len(first)
    assert tokens(made, [*second, 7])[1].reused_tokens == 0


@pytest.mark.parametrize(
    ("drafter", "seed"), each_once(["none", "model", "hybrid", "recycle"], range(3))
)
def test_texts_of_many_conversations_are_those_of_fresh_engines(drafter: str, seed: int) -> None:
    made, _ = engine(3, drafter)
    chance = random.Random(seed)
    talks: list[list[int]] = [list(SYSTEM)]
    for _ in range(25):
        if chance.random() < 0.3:
            of = chance.choice(talks)
            talks.append(of[: chance.randrange(1, len(of) + 1)])
        talk = chance.choice(talks)
        talk += [chance.randrange(16) for _ in range(chance.randrange(1, 6))]
        if len(talk) > 300:
            del talk[200:]
        found, _ = tokens(made, talk)
        assert found == own(talk)
        talk += found
        assert len(made.pool) <= 3


def test_a_fork_of_the_wrong_prefix_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: the fork is told to hold one token more than is shared."""
    right = session_pool.shared_length

    def wrong(held: Sequence[int], text: Sequence[int]) -> int:
        return min(len(held), len(text), right(held, text) + 1)

    monkeypatch.setattr(session_pool, "shared_length", wrong)
    made, _ = engine(3)
    prompts = [[*SYSTEM, topic, 9] for topic in (1, 2, 3)]
    assert [tokens(made, prompt, 30)[0] for prompt in prompts] != [
        own(prompt, 30) for prompt in prompts
    ]
    assert len(made.pool) == 3


def test_sessions_that_make_room_are_closed() -> None:
    made, _ = engine(2)
    opened = []
    for topic in range(5):
        tokens(made, [topic] * 30)
        opened.append(made.target)
    made.pool.close()
    assert all(session._closed for session in opened)  # type: ignore[attr-defined]


def test_a_short_text_is_overwritten() -> None:
    made, _ = engine(3)
    sampling = SamplingParams()
    for topic in (1, 2, 3):
        request = decoding.request(sampling, 16, [topic] * 4, coupled=True, max_new_tokens=2)
        list(made.run(request, Metrics()))
    assert len(made.pool) == 1
