"""Decoding without models: passes take what a curve says, tokens are accepted by chance."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from edgedec.decoding.drafting.base import DraftStep, Offer
from edgedec.decoding.policy import CostCurve, DraftPolicy, RoundRecord

# A 0.5 B decoder in int4 on two threads of a small machine: 1 row takes 8.3 ms.
RATIOS = {1: 1, 2: 1.05, 3: 1.24, 4: 1.32, 5: 1.5, 6: 1.63, 8: 1.98, 16: 3.31, 17: 3.5}
CURVE = CostCurve(tuple(RATIOS), tuple(8.3e-3 * ratio for ratio in RATIOS.values()))

# From the generator and the tokens so far: the draft's confidence, and the truth.
Process = Callable[[np.random.Generator, int], tuple[float, float]]


@functools.cache
def same(chance: float) -> Process:
    """Every token is accepted with this chance, and the draft says so."""
    return lambda rng, tokens: (chance, chance)


def mixed(a: float, b: float, honesty: float = 1.0) -> Process:
    """Confidences follow a beta distribution; the truth is ``honesty`` times as much."""

    def process(rng: np.random.Generator, tokens: int) -> tuple[float, float]:
        confidence = float(rng.beta(a, b))
        return confidence, honesty * confidence

    return process


class World:
    """A chain drafter and a target with known costs and known chances.

    Which tokens of the text the drafter gets right is settled by the seed alone, so that
    policies are compared on the same text.
    """

    def __init__(
        self,
        process: Process,
        draft_s: float = 0.8e-3,
        curve: CostCurve = CURVE,
        *,
        source: str = "model",
        fallback: World | None = None,
        seed: int = 0,
    ) -> None:
        self.process, self.draft_s, self.curve = process, draft_s, curve
        self.source, self.fallback = source, fallback
        self.rng = np.random.default_rng(seed)
        self.text: list[tuple[float, bool]] = []
        self.seconds = 0.0
        self.tokens = self.drafted = self.rounds = 0
        self.slower = 1.0

    @property
    def plain(self) -> float:
        """Tokens a second without drafts."""
        return 1 / self.curve.at(1)

    def draft(self, policy: DraftPolicy, most: int) -> tuple[str, list[bool], float]:
        """Which drafter, which of its tokens are right, seconds it took."""
        looks = nodes = 0

        def confidence() -> float:
            nonlocal looks
            looks = nodes + 1
            return self.token(self.tokens + nodes)[0]

        def token() -> int:
            # The text is all ones, and a wrong token is a zero.
            return int(self.token(self.tokens + nodes)[1])

        rivals = (self.fallback.source,) if self.fallback else ()
        costly = self.draft_s > 10e-6
        offer = Offer(self.source, confidence, token, costly=costly, rivals=rivals)
        while nodes < most and policy.go_on(DraftStep(offer, nodes, nodes)):
            confidence()
            nodes += 1
        if not nodes and self.fallback is not None:
            self.fallback.tokens = self.tokens
            source, right, more = self.fallback.draft(policy, most)
            return source, right, looks * self.draft_s + more
        right = [self.token(self.tokens + n)[1] for n in range(nodes)]
        return self.source, right, looks * self.draft_s

    def token(self, position: int) -> tuple[float, bool]:
        """The draft's confidence in a token of the text, and whether it is right."""
        while len(self.text) <= position:
            confidence, chance = self.process(self.rng, len(self.text))
            self.text.append((confidence, bool(self.rng.random() < chance)))
        return self.text[position]

    def round(self, policy: DraftPolicy) -> None:
        source, right, draft_s = self.draft(policy, policy.limits().nodes)
        accepted = right.index(False) if False in right else len(right)
        target_s = self.slower * self.curve.at(len(right) + 1)
        self.seconds += target_s + draft_s
        self.tokens += accepted + 1
        self.drafted += len(right)
        self.rounds += 1
        path = tuple(range(accepted + 1))
        policy.observe(
            RoundRecord(
                drafted=len(right),
                depth=len(right),
                accepted=accepted,
                emitted=accepted + 1,
                rows=len(right) + 1,
                draft_s=draft_s,
                target_s=target_s,
                total_s=target_s + draft_s,
                source=source,
                path=path,
                tokens=[1] * (accepted + 1),
            )
        )

    def run(self, policy: DraftPolicy, tokens: int) -> float:
        """Tokens a second over the next ``tokens`` tokens."""
        begin, end, started = self.tokens, self.tokens + tokens, self.seconds
        while self.tokens < end:
            self.round(policy)
        return (self.tokens - begin) / (self.seconds - started)
