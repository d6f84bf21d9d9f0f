"""A target, a drafter and a loop that may reject whatever a test wants rejected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import (
    PREFILL_AT_ONCE,
    Drafter,
    DrafterParts,
    DraftLimits,
    DraftStep,
    RoundFeedback,
)
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Want
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.testing import FakeModel

VOCAB, MASK = 16, 15
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
GREEDY = SamplingParams()
HOT = SamplingParams(temperature=1.1, seed=4)
PENALISED = SamplingParams(temperature=0.8, repetition_penalty=1.3, frequency_penalty=0.4, seed=5)


class MaskedModel(FakeModel):
    """Reads a mask at the end of a text as the token that is most likely there."""

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        known = list(tokens)
        while known and known[-1] == MASK:
            known.pop()
        for _ in tokens[len(known) :]:
            known.append(int(super().logits(known).argmax()))
        return super().logits(known)


def always(step: DraftStep) -> bool:
    return True


class Table:
    """Fake models that resemble each other, and one drafter."""

    def __init__(
        self,
        name: str,
        params: SamplingParams = GREEDY,
        *,
        coupled: bool = True,
        capacity: int = 400,
        prompt: Sequence[int] = PROMPT,
        context: int | None = 3,
        sharpness: float = 3.0,
        prefill_at_once: int = PREFILL_AT_ONCE,
    ) -> None:
        self.target = FakeModel(VOCAB, context=context, sharpness=sharpness)
        mask = MASK if drafting.info(name).needs_mask else None
        self.draft = (FakeModel if mask is None else MaskedModel)(
            VOCAB, seed=1, context=context, sharpness=sharpness, like=(self.target, 0.8)
        )
        self.session = self.draft.open(capacity)
        self.scorer = self.target.open(4000)
        parts = DrafterParts(VOCAB, self.session, mask=mask, prefill_at_once=prefill_at_once)
        self.drafter: Drafter = drafting.create(name, parts)
        self.begin(prompt, params, coupled=coupled)

    def begin(
        self, prompt: Sequence[int], params: SamplingParams = GREEDY, *, coupled: bool = True
    ) -> None:
        self.sampler = Sampler(params, VOCAB, prompt, coupled=coupled)
        self.scorer.rollback(0)
        self.scorer.prefill(prompt[:-1])
        self.drafter.begin(prompt, self.sampler)

    def propose(
        self, nodes: int = 4, depth: int = 4, go_on: Callable[[DraftStep], bool] = always
    ) -> Draft:
        root, streams = self.sampler.history[-1], self.sampler.streams
        return self.drafter.propose(root, DraftLimits(nodes, depth), go_on, streams)

    def settle(self, draft: Draft, most: int = 99, cut: int = 99) -> int:
        """Verify by match; accept ``most`` at most, emit ``cut`` at most; count accepted."""
        tree = draft.tree
        scored = self.scorer.forward(tree, want=Want.LOGITS)
        rows = self.sampler.rows(scored, tree, Purpose.TARGET)
        path, token = [0], rows.draw(0)
        while (child := tree.child(path[-1], token)) is not None and len(path) <= most:
            path.append(child)
            token = rows.draw(child)
        kept = [*tree.tokens_on(path[1:]), token][:cut]
        self.scorer.commit(path[: len(kept)])
        self.sampler.push(kept)
        self.drafter.observe(RoundFeedback(draft, Verdict(path, token), scored, kept))
        self.check()
        self.path = path
        return len(path) - 1

    def check(self) -> None:
        """The draft session holds a prefix of the text, the last token never."""
        held = self.session._committed
        assert held == self.sampler.history[: len(held)]
        assert len(held) < len(self.sampler.history)
        assert self.session._pending == 0

    def plain(self, count: int) -> list[int]:
        """What the target alone would say."""
        sampler = Sampler(self.sampler.params, VOCAB, PROMPT)
        session = self.target.open(4000)
        session.prefill(PROMPT[:-1])
        for _ in range(count):
            tree = TokenTree(sampler.history[-1])
            rows = sampler.rows(session.forward(tree), tree, Purpose.TARGET)
            sampler.push([rows.draw(0)])
            session.commit([0])
        return sampler.history
