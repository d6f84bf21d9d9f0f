"""Acceptance for any p, q and tree: exact probabilities, and the text of plain decoding."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from broken_rules import SiblingsStay
from hypothesis import find, given
from hypothesis import strategies as st

from benchmarks.certificate.distribution import DrawsAgain
from edgedec.decoding.acceptance import (
    GumbelCoupling,
    Residual,
    SampleAndMatch,
    SpeculativeSampling,
)
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.testing import FakeModel

VOCAB = 4
Floats = npt.NDArray[np.float64]
Case = tuple[list[int], list[int], int]


@st.composite
def distributions(draw: st.DrawFn) -> list[int]:
    """Weights of a distribution, zeros among them."""
    weights = draw(st.lists(st.integers(0, 9), min_size=VOCAB, max_size=VOCAB))
    return weights if sum(weights) else [1, *weights[1:]]


cases = st.tuples(distributions(), distributions(), st.integers(1, VOCAB))


def normal(weights: list[int]) -> FloatArray:
    row = np.array(weights, dtype=np.float32)
    row /= row.sum()
    return row


def drawn(q: Floats, children: int) -> list[tuple[tuple[int, ...], float]]:
    """Every ordered draw without replacement and its probability; fewer when q runs out."""
    count = min(children, int((q > 0).sum()))
    found = []
    for order in itertools.permutations(np.flatnonzero(q > 0).tolist(), count):
        chance, left = 1.0, 1.0
        for token in order:
            chance *= q[token] / left
            left -= q[token]
        found.append((order, chance))
    return found


def emitted(kind: type[Residual], case: Case, *, sure: bool = False) -> Floats:
    """The distribution of the emitted token, summed over every draw and every decision.

    ``sure``: the children are the same whatever happens, and there is no q.
    """
    p, q, children = normal(case[0]), normal(case[1]), case[2]
    result = np.zeros(VOCAB)
    draws = drawn(q.astype(np.float64), children)
    for order, chance in [(draws[0][0], 1.0)] if sure else draws:
        residual = kind(p, None if sure else q)
        for token in order:
            accepted = min(1.0, residual.chance(token))
            result[token] += chance * accepted
            chance *= 1 - accepted
            residual.reject(token)
        result += chance * residual._p.astype(np.float64) / residual._p.sum()
    return result


class KeepsP(Residual):
    """A broken twin."""

    def reject(self, token: int) -> None:
        p, mass = self._p, self._p_mass
        super().reject(token)
        self._p, self._p_mass = p, mass


def off(kind: type[Residual], case: Case, *, sure: bool = False) -> float:
    return float(np.abs(emitted(kind, case, sure=sure) - normal(case[0])).max())


@given(cases, st.booleans())
def test_rejection_leaves_exactly_p(case: Case, sure: bool) -> None:
    assert off(Residual, case, sure=sure) < 1e-5


@pytest.mark.parametrize("twin", [SiblingsStay, KeepsP])
def test_broken_twins_are_caught(twin: type[Residual]) -> None:
    find(cases, lambda case: off(twin, case) > 0.02)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Any tree: tokens and the parents they are added to (siblings may repeat a token)."""
    size = draw(st.integers(0, 8))
    return [(draw(st.integers(0, VOCAB - 1)), draw(st.integers(0, i))) for i in range(size)]


def first_round(rule: Any, nodes: list[tuple[int, int]], params: SamplingParams) -> list[int]:
    """What one round over this tree emits."""
    model, prompt = FakeModel(VOCAB, sharpness=1), [1, 2]
    session = model.open(64)
    session.prefill(prompt[:-1])
    tree = TokenTree(prompt[-1])
    for token, parent in nodes:
        tree.add(token, parent)
    sampler = Sampler(params, VOCAB, prompt, coupled=rule.coupled)
    rows = sampler.rows(session.forward(tree), tree, Purpose.TARGET)
    verdict = rule.accept(Draft(tree), rows, sampler.streams)
    assert tree.is_path(verdict.path)
    assert verdict.path[0] == 0
    return [*tree.tokens_on(verdict.path[1:]), verdict.next_token]


def plain(params: SamplingParams, length: int) -> list[int]:
    model, text = FakeModel(VOCAB, sharpness=1), [1, 2]
    for _ in range(length):
        session = model.open(64)
        session.prefill(text[:-1])
        sampler = Sampler(params, VOCAB, [1, 2])
        sampler.push(text[2:])
        tree = TokenTree(text[-1])
        rows = sampler.rows(session.forward(tree), tree, Purpose.TARGET)
        text.append(rows.draw(0))
    return text[2:]


settings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.7, 2]),
    top_p=st.sampled_from([1, 0.8]),
    frequency_penalty=st.sampled_from([0, 1.5]),
    logit_bias=st.sampled_from([{}, {3: 1.0}]),
    seed=st.integers(0, 50),
)


@given(trees(), settings, st.sampled_from([GumbelCoupling, SampleAndMatch]))
def test_any_tree_gives_the_text_of_plain_decoding(
    nodes: list[tuple[int, int]], params: SamplingParams, rule: Any
) -> None:
    tokens = first_round(rule(), nodes, params)
    assert tokens == plain(params, len(tokens))


@given(trees(), settings)
def test_greedy_is_the_same_for_the_rejection_rule(
    nodes: list[tuple[int, int]], params: SamplingParams
) -> None:
    tokens = first_round(SpeculativeSampling(), nodes, params)
    if params.greedy:
        assert tokens == plain(params, len(tokens))


def test_a_rule_that_draws_again_is_caught() -> None:
    def differs(case: tuple[list[tuple[int, int]], SamplingParams]) -> bool:
        tokens = first_round(DrawsAgain(), *case)
        return tokens != plain(case[1], len(tokens))

    find(st.tuples(trees(), settings), differs)
