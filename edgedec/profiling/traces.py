"""Records traces: the target's text on calibration prompts, and both models' choices on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.decoding.acceptance import GumbelCoupling
from edgedec.decoding.drafting.none import NoDrafter
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams, filters
from edgedec.decoding.session import Pass, Session, Want
from edgedec.decoding.stopping import NoText, StopRule
from edgedec.decoding.tree import IntArray, TokenTree
from edgedec.records.trace import Choices, Trace

CHOICES = 8
TEMPERATURES = (0.0, 0.8)
_SEED = 20260101


@dataclass(frozen=True, slots=True)
class TraceRecorder:
    """Records traces with two sessions.

    Attributes:
        target: the target's session, emptied before each text.
        draft: the draft's session, which takes the target's token ids and is emptied before each
            text; None without a draft model.
        vocab_size: columns of the target's rows.
        eos_ids: tokens that end a text.

    """

    target: Session
    draft: Session | None
    vocab_size: int
    eos_ids: tuple[int, ...]

    def record(
        self, name: str, prompt: Sequence[int], temperature: float, new_tokens: int
    ) -> Trace:
        """Let the target continue a prompt, and record both models' choices at every token.

        Args:
            name: name of the prompt.
            prompt: at least one token.
            temperature: 0 is greedy.
            new_tokens: most tokens to generate.

        """
        params = SamplingParams(temperature=temperature, seed=_SEED)
        text = self._text(prompt, params, new_tokens)
        target = self.choices(self.target, prompt, text, params, Purpose.TARGET)
        draft = None
        if self.draft is not None:
            draft = self.choices(self.draft, prompt, text, params, Purpose.DRAFT)
        return Trace(name, temperature, len(prompt), (*prompt, *text), target, draft)

    def _text(self, prompt: Sequence[int], params: SamplingParams, new_tokens: int) -> list[int]:
        """Return the tokens that plain decoding generates."""
        engine = Engine(self.target, NoDrafter(), Fixed(0), GumbelCoupling())
        limit = min(new_tokens, engine.room(prompt))
        stop = StopRule(eos_ids=self.eos_ids, max_new_tokens=limit, stream=NoText())
        request = Request(prompt, Sampler(params, self.vocab_size, prompt), stop)
        rounds = engine.run(request, Metrics())
        return [emission.token for emissions in rounds for emission in emissions]

    def choices(
        self,
        session: Session,
        prompt: Sequence[int],
        text: Sequence[int],
        params: SamplingParams,
        purpose: Purpose,
    ) -> Choices:
        """Return a model's choices before each token of a given text, one token per pass.

        Plain decoding computes row by row, and quantised weights round differently in wider passes.
        """
        sampler = Sampler(params, self.vocab_size, prompt)
        session.rollback(0)
        session.prefill(prompt[:-1])
        ids: list[tuple[int, ...]] = []
        chances: list[tuple[float, ...]] = []
        for token in text:
            tree = TokenTree(sampler.history[-1])
            scored = session.forward(tree, want=Want.TOP | Want.LOGITS)
            rows = sampler.rows(scored, tree, purpose)
            best = _best(scored, rows, params)
            ids.append(tuple(best.tolist()))
            chances.append(_chances(scored, rows, best, params))
            session.commit([0])
            sampler.push([token])
        session.rollback(0)
        return Choices(tuple(ids), tuple(chances))


def _best(scored: Pass, rows: Rows, params: SamplingParams) -> IntArray:
    """Return a fixed number of most likely tokens, those without probability last."""
    if params.greedy and scored.logits is not None:
        return filters.ranked(scored.logits[0], min(CHOICES, scored.logits.shape[1]))
    return rows.best(0, CHOICES)


def _chances(scored: Pass, rows: Rows, ids: IntArray, params: SamplingParams) -> tuple[float, ...]:
    """Return probabilities; when greedy, the model's own instead of the one-hot distribution."""
    if params.greedy and scored.logits is not None:
        row = scored.logits[0].astype(np.float64)
        weights = np.exp(row - row.max())
        found = weights[ids] / weights.sum()
    else:
        found = rows.probs(0)[ids]
    return tuple(round(float(chance), 7) for chance in found)
