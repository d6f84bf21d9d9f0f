"""A model so small that the distribution of its whole texts can be enumerated.

It has four tokens, logits that depend on the last two, and texts of four tokens: 256 texts. The
draft resembles the target in part, so that every rule rejects often; a uniformly random draft could
not distinguish a right residual from a wrong one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.constraint import BoolArray
from edgedec.decoding.drafting._earlier import EarlierTexts, corpus_of
from edgedec.decoding.drafting.base import Drafter, DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.policy.base import DraftPolicy
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import FloatArray
from edgedec.testing import FakeModel, TableConstraint
from edgedec.testing.constraint import Table

VOCAB = 4
HORIZON = 4
PROMPT = [0, 1, 2, 0, 1, 3, 0, 1]  # repeats itself, so that lookup finds something
CONTEXT = 2
# One threshold for all: correct rules stay above it, broken ones fall below.
SUSPICIOUS = 1e-3
RUNS = 2000

Floats = npt.NDArray[np.float64]
Wrap = Callable[[Drafter], Drafter]


class EnumerableModel(FakeModel):
    """A fake model whose few rows are computed once."""

    def __init__(self, seed: int, like: tuple[FakeModel, float] | None = None) -> None:
        super().__init__(VOCAB, seed=seed, context=CONTEXT, sharpness=1.0, like=like)
        self._rows: dict[tuple[int, ...], FloatArray] = {}

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        seen = tuple(tokens[-CONTEXT:])
        if seen not in self._rows:
            self._rows[seen] = super().logits(seen)
        return self._rows[seen]


TARGET = EnumerableModel(seed=1)
DRAFT = EnumerableModel(seed=2, like=(TARGET, 0.3))


@dataclass(frozen=True)
class Setting:
    """A decoding configuration: a drafter by name, a policy, a rule, parameters.

    With a ``translation`` the draft model has another vocabulary; with a ``table`` the text is
    constrained; ``earlier`` is a text that was read before.
    """

    rule: AcceptanceRule
    drafter: str = "model"
    policy: Callable[[], DraftPolicy] = lambda: Fixed(3)
    temperature: float = 0.8
    top_k: int = 0
    frequency_penalty: float = 0.0
    wrap: Wrap | None = None
    translation: Translation | None = None
    table: Table | None = None
    earlier: Sequence[int] = ()

    def params(self, seed: int) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            frequency_penalty=self.frequency_penalty,
            seed=seed,
        )


def observed(setting: Setting, runs: int = RUNS) -> tuple[Floats, Metrics]:
    """Count each text over the seeds 0, 1, ..., ``[VOCAB ** HORIZON]``."""
    target, draft = TARGET.open(64), DRAFT.open(64)
    drafter = drafting.create(
        setting.drafter,
        DrafterParts(
            VOCAB,
            draft,
            translation=setting.translation,
            earlier=EarlierTexts(corpus_of([setting.earlier])) if setting.earlier else None,
        ),
    )
    if setting.wrap is not None:
        drafter = setting.wrap(drafter)
    engine = Engine(target, drafter, setting.policy(), setting.rule)
    counts, metrics = np.zeros(VOCAB**HORIZON), Metrics()
    for seed in range(runs):
        table = setting.table
        sampler = Sampler(
            setting.params(seed),
            VOCAB,
            PROMPT,
            coupled=setting.rule.coupled,
            constraint=None if table is None else TableConstraint(table, VOCAB),
        )
        request = Request(PROMPT, sampler, StopRule(max_new_tokens=HORIZON))
        tokens = [event.token for round in engine.run(request, metrics) for event in round]
        counts[index(tokens)] += 1
    return counts, metrics


def index(tokens: Sequence[int]) -> int:
    """Return a text's index."""
    cell = 0
    for token in tokens:
        cell = cell * VOCAB + token
    return cell


def expected(setting: Setting) -> Floats:
    """Return the probability of every text by definition, ``[VOCAB ** HORIZON]``."""
    chances = np.ones(VOCAB**HORIZON)
    for text in itertools.product(range(VOCAB), repeat=HORIZON):
        for i, token in enumerate(text):
            row = TARGET.logits([*PROMPT, *text[:i]]).astype(np.float64)
            row -= setting.frequency_penalty * np.bincount(text[:i], minlength=VOCAB)
            row /= setting.temperature
            row[~_allowed(setting.table, text[:i])] = -np.inf
            if setting.top_k:
                row[np.argsort(-row)[setting.top_k :]] = -np.inf
            weights = np.exp(row - row.max())
            chances[index(text)] *= weights[token] / weights.sum()
            if not chances[index(text)]:
                break  # the distribution after a refused token is undefined
    return chances


def _allowed(table: Table | None, path: Sequence[int]) -> BoolArray:
    """Return which tokens may follow an allowed path, by definition."""
    if table is None:
        return np.ones(VOCAB, dtype=np.bool_)
    state = 0
    for token in path:
        state = table[state][token]
    return np.isin(np.arange(VOCAB), list(table[state]))


def p_value(counts: Floats, chances: Floats) -> float:
    """Return the chi-squared p-value, with cells below 5 merged; 0 for an impossible text.

    The tail is Wilson and Hilferty's approximation (1931), accurate to a few percent here.
    """
    if counts[chances == 0].sum() > 0:
        return 0.0
    means = chances * counts.sum()
    rare = means < 5
    seen = np.append(counts[~rare], counts[rare].sum())
    means = np.append(means[~rare], means[rare].sum())
    seen, means = seen[means > 0], means[means > 0]
    freedom = len(seen) - 1
    chi2 = float(((seen - means) ** 2 / means).sum())
    deviation = ((chi2 / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(
        2 / (9 * freedom)
    )
    return math.erfc(deviation / math.sqrt(2)) / 2
