"""Tests texts by chi-squared for each sampling rule, and for broken rules that must be flagged."""

from __future__ import annotations

from benchmarks.certificate.enumerable import SUSPICIOUS, Setting, expected, observed, p_value
from edgedec.compare.interleaved import Progress
from edgedec.decoding.acceptance import (
    BigLittle,
    GumbelCoupling,
    Residual,
    SampleAndMatch,
    SpeculativeSampling,
    Verdict,
)
from edgedec.decoding.drafting.base import DraftStep
from edgedec.decoding.policy import Fixed
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft


def bushy() -> Fixed:
    """Return a policy for trees of seven nodes, two deep."""
    return Fixed(7, depth=2)


class Wary(Fixed):
    """A policy that depends on the draft so far, which must not affect any rule's distribution."""

    def __init__(self, least: float) -> None:
        super().__init__(6, depth=4)
        self._least = least

    def go_on(self, step: DraftStep) -> bool:
        value = step.offer.confidence() if step.value is None else step.value
        return value > self._least


def _drawn_from_p(verdict: Verdict, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
    """Return the verdict with another next token, drawn from p, if a draft was rejected."""
    last = verdict.path[-1]
    if not draft.tree.children(last):
        return verdict
    uniform = streams.uniform(rows.position(last), Purpose.RECOVER)
    return Verdict(verdict.path, Residual(rows.probs(last), None).draw(uniform))


class KeepsTheResidual(SpeculativeSampling):
    """Broken on purpose: draws the recovered token as if q were not subtracted."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        return _drawn_from_p(super().accept(draft, rows, streams), draft, rows, streams)


class DrawsAgain(GumbelCoupling):
    """Broken on purpose: draws a new token if the draft missed the target's."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        return _drawn_from_p(super().accept(draft, rows, streams), draft, rows, streams)


HONEST = {
    "plain": Setting(GumbelCoupling(), "none"),
    "coupling, chain": Setting(GumbelCoupling()),
    "coupling, tree": Setting(GumbelCoupling(), "tree", bushy),
    "coupling, lookup": Setting(GumbelCoupling(), "lookup"),
    "match, chain": Setting(SampleAndMatch()),
    "match, recycling tree": Setting(SampleAndMatch(), "recycle", bushy),
    "speculative, chain": Setting(SpeculativeSampling()),
    "speculative, chain, cold, top-k": Setting(SpeculativeSampling(), temperature=0.5, top_k=3),
    "speculative, chain, penalty": Setting(SpeculativeSampling(), frequency_penalty=1.0),
    "speculative, lookup": Setting(SpeculativeSampling(), "lookup"),
    "speculative, recycling tree": Setting(SpeculativeSampling(), "recycle", bushy),
    "recursive rejection, tree": Setting(SpeculativeSampling(), "tree", bushy),
    "recursive rejection, tree, top-k": Setting(SpeculativeSampling(), "tree", bushy, top_k=2),
    "speculative, chain, wary": Setting(SpeculativeSampling(), policy=lambda: Wary(0.45)),
    "speculative, lookup, model": Setting(SpeculativeSampling(), "hybrid", lambda: Wary(0.4)),
    "speculative, several drafters": Setting(SpeculativeSampling(), "adaptive", lambda: Wary(0.4)),
    "recursive rejection, wary": Setting(SpeculativeSampling(), "tree", lambda: Wary(0.3)),
}
FLAGGED = {
    "residual not subtracted": Setting(KeepsTheResidual()),
    "residual not subtracted, tree": Setting(KeepsTheResidual(), "tree", bushy),
    "residual not subtracted, lookup": Setting(KeepsTheResidual(), "lookup"),
    "coupling draws again": Setting(DrawsAgain()),
    "BiLD's threshold": Setting(BigLittle()),
}


def tested(progress: Progress) -> list[dict[str, object]]:
    """Test every setting; correct ones must be above the threshold, broken ones below."""
    progress.expect(len(HONEST) + len(FLAGGED))
    rows: list[dict[str, object]] = []
    for lossless, settings in ((True, HONEST), (False, FLAGGED)):
        for name, setting in settings.items():
            counts, metrics = observed(setting)
            p = p_value(counts, expected(setting))
            rows.append(
                {
                    "setting": name,
                    "texts": int(counts.sum()),
                    "p_value": p,
                    "acceptance_rate": metrics.acceptance_rate,
                    "flagged": p < SUSPICIOUS,
                    "as_expected": (p < SUSPICIOUS) is not lossless,
                }
            )
            progress.step()
    return rows
