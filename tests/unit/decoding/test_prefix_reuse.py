"""A text after another reads only what is new, and is the text of a fresh engine all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from kinds import each_once

from edgedec.decoding import acceptance, drafting, session_pool
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Capabilities, Rollback
from edgedec.errors import CannotRollback, PassFailed
from edgedec.testing import FakeModel, decoding
from edgedec.testing.fake import FakeSession

VOCAB = 16
SAMPLING = SamplingParams(temperature=1.0, seed=3)
DRAFTERS = ["none", "model", "tree", "recycle", "hybrid"]


class Reader(FakeModel):
    """Logits depend on every token that the session holds, so that a wrong prefix shows."""

    def __init__(self) -> None:
        super().__init__(VOCAB, sharpness=3.0)
        self.read: list[int] = []

    def open(self, capacity: int) -> FakeSession:
        return CountingSession(self, capacity)


class CountingSession(FakeSession):
    def prefill(self, tokens: Sequence[int], on_chunk: object = None) -> None:
        assert isinstance(self._model, Reader)
        self._model.read.append(len(tokens))
        super().prefill(tokens, on_chunk)  # type: ignore[arg-type]


def built(drafter: str, target: FakeModel | None = None) -> Engine:
    target = target or Reader()
    draft = FakeModel(VOCAB, seed=1, context=2, like=(FakeModel(VOCAB, sharpness=3.0), 0.8))
    parts = DrafterParts(VOCAB, draft.open(600))
    rule = acceptance.rule("coupling")
    return Engine(target.open(400), drafting.create(drafter, parts), Fixed(3), rule)


def tokens(of: Engine, prompt: Sequence[int], count: int = 12) -> tuple[list[int], Metrics]:
    request = decoding.request(
        SAMPLING, VOCAB, prompt, coupled=of.rule.coupled, max_new_tokens=count
    )
    metrics = Metrics()
    return [event.token for block in of.run(request, metrics) for event in block], metrics


def conversation(seed: int) -> Iterator[list[int]]:
    """Yield prompts that share a random prefix with the last one, or go on from it."""
    chance = random.Random(seed)
    text: list[int] = []
    for _ in range(8):
        text = text[: chance.randrange(len(text) + 1)] if chance.random() < 0.5 else text
        text = [*text, *(chance.randrange(VOCAB) for _ in range(chance.randrange(1, 9)))]
        yield list(text)


def own(prompt: Sequence[int], count: int = 12) -> list[int]:
    return tokens(built("none"), prompt, count)[0]


@pytest.mark.parametrize(("drafter", "seed"), each_once(DRAFTERS, range(4)))
def test_each_text_of_a_conversation_is_that_of_a_fresh_engine(drafter: str, seed: int) -> None:
    kept, reused = built(drafter), 0
    for prompt in conversation(seed):
        found, metrics = tokens(kept, prompt)
        assert found == own(prompt)
        reused += metrics.reused_tokens
    assert reused


def test_a_prefix_that_is_one_token_too_long_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: one more token counts as shared."""
    right = session_pool.shared_length

    def wrong(held: Sequence[int], text: Sequence[int]) -> int:
        return min(len(held), len(text), right(held, text) + 1)

    monkeypatch.setattr(session_pool, "shared_length", wrong)
    kept = built("none")
    prompts = list(conversation(1))
    assert [tokens(kept, prompt)[0] for prompt in prompts] != [own(prompt) for prompt in prompts]


def test_the_next_turn_reads_only_what_is_new() -> None:
    model = Reader()
    kept = built("model", model)
    prompt = [1, 2, 3, 4, 5, 6]
    answer, first = tokens(kept, prompt)
    # The last token's keys and values were never needed.
    turn = [*prompt, *answer, 7, 8]
    _, second = tokens(kept, turn)
    assert first.reused_tokens == 0
    assert second.reused_tokens == len(prompt) + len(answer) - 1
    assert model.read == [len(prompt) - 1, 2]


def test_the_same_prompt_again_is_not_read_again() -> None:
    model = Reader()
    kept = built("none", model)
    assert tokens(kept, [1, 2, 3, 4])[0] == tokens(kept, [1, 2, 3, 4])[0]
    assert model.read == [3, 0]


def test_a_forgotten_text_is_read_again() -> None:
    model = Reader()
    kept = built("none", model)
    tokens(kept, [1, 2, 3, 4])
    kept.pool.forget()
    assert tokens(kept, [1, 2, 3, 4])[1].reused_tokens == 0
    assert model.read == [3, 3]


def test_a_session_that_somebody_else_used_counts_as_empty() -> None:
    kept = built("none")
    tokens(kept, [1, 2, 3, 4])
    kept.target.rollback(0)
    kept.target.prefill([9, 9])
    found, metrics = tokens(kept, [1, 2, 3, 4, 5])
    assert (found, metrics.reused_tokens) == (own([1, 2, 3, 4, 5]), 0)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_text_left_in_the_middle_leaves_what_was_committed(rounds: int) -> None:
    kept = built("model")
    prompt = [1, 2, 3, 4]
    request = decoding.request(SAMPLING, VOCAB, prompt, coupled=True, max_new_tokens=40)
    stream = kept.run(request, Metrics())
    said = [event.token for _ in range(rounds) for event in next(stream)]
    stream.close()
    turn = [*prompt, *said, 5]
    found, metrics = tokens(kept, turn)
    assert found == own(turn)
    assert metrics.reused_tokens == (len(prompt) + len(said) - 1 if rounds else 0)


def test_a_failed_pass_leaves_nothing_to_build_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = built("none")
    tokens(kept, [1, 2, 3, 4])

    def fails(*_: object) -> None:
        raise PassFailed("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(FakeSession, "_score", fails)
        with pytest.raises(PassFailed, match="gone"):
            tokens(kept, [1, 2, 3, 4, 5])
    found, metrics = tokens(kept, [1, 2, 3, 4, 5])
    assert (found, metrics.reused_tokens) == (own([1, 2, 3, 4, 5]), 0)


class Coarse(CountingSession):
    """A session that can go back to multiples of four only."""

    def _cut(self, length: int) -> None:
        if length % 4:
            raise CannotRollback("multiples of four only", nearest=length - length % 4)
        super()._cut(length)


def test_a_session_that_cannot_stop_at_the_prefix_goes_further_back() -> None:
    model = Reader()
    model.capabilities = Capabilities(top_k=8, rollback=Rollback.RECENT)
    model.open = lambda capacity: Coarse(model, capacity)  # type: ignore[method-assign]
    kept = built("none", model)
    tokens(kept, [1, 2, 3, 4, 5, 6, 7, 8])
    found, metrics = tokens(kept, [1, 2, 3, 4, 5, 6, 9])
    assert (found, metrics.reused_tokens) == (own([1, 2, 3, 4, 5, 6, 9]), 4)
