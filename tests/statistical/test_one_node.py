"""Acceptance at a single node, where p and q can be chosen to tell rules apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from broken_rules import SiblingsStay

from benchmarks.certificate.enumerable import SUSPICIOUS, p_value
from edgedec.decoding.acceptance import (
    AcceptanceRule,
    GumbelCoupling,
    Residual,
    SampleAndMatch,
    SpeculativeSampling,
    Verdict,
)
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft, TokenTree

pytestmark = pytest.mark.statistical

Floats = npt.NDArray[np.float64]

# The draft's favourite is wrong, and for two tokens p - q is small but positive: there a
# child's chance depends on whether its earlier siblings were taken out of q.
P = np.array([0.10, 0.25, 0.22, 0.43])
Q = np.array([0.50, 0.20, 0.20, 0.10])


def scored(chances: Floats, rows: int = 1) -> Pass:
    logits = np.tile(np.log(chances).astype(np.float32), (rows, 1))
    ids = np.argsort(-logits, axis=1)
    return Pass(0, ids, np.take_along_axis(logits, ids, 1), logits)


def one_round(rule: AcceptanceRule, p: Pass, q: Pass, children: int, seed: int) -> tuple[int, int]:
    """The first token of the text, and how many drafted ones were accepted (0 or 1)."""
    size = p.top_ids.shape[1]
    params = SamplingParams(temperature=1, seed=seed)
    sampler = Sampler(params, size, [0], coupled=rule.coupled)
    tree = TokenTree(0)
    drafted = sampler.rows(q, tree, Purpose.DRAFT)
    given = {} if rule.coupled else {0: drafted.probs(0)}
    for token in drafted.best(0, children).tolist():
        tree.add(token, 0)
    rows = sampler.rows(p, tree, Purpose.TARGET)
    verdict = rule.accept(Draft(tree, given), rows, sampler.streams)
    emitted = [*tree.tokens_on(verdict.path[1:]), verdict.next_token]
    return emitted[0], verdict.accepted


def experiment(
    rule: AcceptanceRule, children: int, *, runs: int = 6000, p: Floats = P, q: Floats = Q
) -> tuple[Floats, float]:
    """Counts of the emitted token, and the share of rounds that accepted a child."""
    target, draft = scored(p, 1 + children), scored(q)
    counts, accepted = np.zeros(len(p)), 0
    for seed in range(runs):
        token, took = one_round(rule, target, draft, children, seed)
        counts[token] += 1
        accepted += took
    return counts, accepted / runs


class ForgetsTheSiblings(SpeculativeSampling):
    """A broken twin: q is not freed of the siblings that were drawn before a child."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        residual, position = SiblingsStay(rows.probs(0), draft.q[0]), rows.position(0)
        for j, child in enumerate(draft.tree.children(0)):
            token = draft.tree.tokens[child]
            if streams.uniform(position, Purpose.ACCEPT, j) < residual.chance(token):
                return Verdict([0, child], rows.draw(child))
            residual.reject(token)
        return Verdict([0], residual.draw(streams.uniform(position, Purpose.RECOVER)))


class OneUniformForAll(ForgetsTheSiblings):
    """A broken twin: every child is judged by the same random number."""

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        residual, position = Residual(rows.probs(0), draft.q[0]), rows.position(0)
        for child in draft.tree.children(0):
            token = draft.tree.tokens[child]
            if streams.uniform(position, Purpose.ACCEPT) < residual.chance(token):
                return Verdict([0, child], rows.draw(child))
            residual.reject(token)
        return Verdict([0], residual.draw(streams.uniform(position, Purpose.RECOVER)))


@pytest.mark.parametrize("children", [1, 2, 3, 4])
@pytest.mark.parametrize("rule", [GumbelCoupling, SampleAndMatch, SpeculativeSampling])
def test_the_token_is_the_target_s(rule: Callable[[], AcceptanceRule], children: int) -> None:
    counts, accepted = experiment(rule(), children)
    assert p_value(counts, P) > SUSPICIOUS
    assert accepted > (0.99 if children == 4 else 0.15)


@pytest.mark.parametrize("twin", [ForgetsTheSiblings, OneUniformForAll])
def test_a_broken_twin_is_flagged(twin: Callable[[], AcceptanceRule]) -> None:
    counts, _ = experiment(twin(), 3)
    assert p_value(counts, P) < SUSPICIOUS


def test_how_much_each_rule_accepts() -> None:
    """A pair that is alike as drafts and targets are: 200 tokens, noise on the logits."""
    rng = np.random.default_rng(5)
    logits = 3 * rng.standard_normal(200)
    p = np.exp(logits) / np.exp(logits).sum()
    other = logits + 1.1 * rng.standard_normal(200)
    q = np.exp(other) / np.exp(other).sum()
    alpha = float(np.minimum(p, q).sum())
    shares = {
        rule.name: experiment(rule(), 1, runs=3000, p=p, q=q)[1]
        for rule in (GumbelCoupling, SampleAndMatch, SpeculativeSampling)
    }
    print(f"sum min(p, q) {alpha:.3f}, independent {float(p @ q):.3f}, measured {shares}")
    error = 4 * (0.25 / 3000) ** 0.5
    assert shares["speculative"] == pytest.approx(alpha, abs=error)
    assert shares["match"] == pytest.approx(float(p @ q), abs=error)
    # The coupling lies between its bound (2408.07978, section 1) and the best possible.
    assert alpha / (2 - alpha) - error < shares["coupling"] < alpha + error
    assert shares["coupling"] > 2 * shares["match"]
