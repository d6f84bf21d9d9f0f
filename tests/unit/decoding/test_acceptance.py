"""What each rule keeps, node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgedec.decoding import acceptance
from edgedec.decoding.acceptance import (
    RULES,
    BigLittle,
    GumbelCoupling,
    Residual,
    SampleAndMatch,
    SpeculativeSampling,
)
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft, FloatArray, TokenTree
from edgedec.errors import InputError

VOCAB = 8
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1, seed=5)
EXACT = [GumbelCoupling, SampleAndMatch, SpeculativeSampling]


def onehot(token: int) -> FloatArray:
    row = np.full(VOCAB, -9, dtype=np.float32)
    row[token] = 9
    return row


def log(chances: Sequence[float]) -> FloatArray:
    row = np.full(VOCAB, 1e-9)
    row[: len(chances)] = chances
    logits: FloatArray = np.log(row).astype(np.float32)
    return logits


def rows_of(
    tree: TokenTree, logits: Sequence[FloatArray], params: SamplingParams, *, coupled: bool = True
) -> tuple[Rows, Sampler]:
    table = np.stack(logits)
    ids = np.argsort(-table, axis=1, kind="stable")
    sampler = Sampler(params, VOCAB, [tree.tokens[0]], coupled=coupled)
    scored = Pass(0, ids, np.take_along_axis(table, ids, 1), table)
    return sampler.rows(scored, tree, Purpose.TARGET), sampler


def accept(
    rule: Any, draft: Draft, logits: Sequence[FloatArray], params: SamplingParams = GREEDY
) -> tuple[list[int], int]:
    rows, sampler = rows_of(draft.tree, logits, params, coupled=rule.coupled)
    verdict = rule.accept(draft, rows, sampler.streams)
    assert verdict.accepted == len(verdict.path) - 1
    return verdict.path, verdict.next_token


def branching() -> TokenTree:
    """0 -> (1, 2); 1 -> 3; 2 -> (4, 5)."""
    tree = TokenTree(0)
    for token, parent in [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2)]:
        tree.add(token, parent)
    return tree


class TestGreedy:
    """Every lossless rule, at temperature 0, follows the argmax and nothing else."""

    @pytest.mark.parametrize("rule", EXACT)
    def test_chain(self, rule: Any) -> None:
        draft = Draft(TokenTree.chain([0, 1, 2, 3]))
        logits = [onehot(t) for t in (1, 2, 3, 4)]
        assert accept(rule(), draft, logits) == ([0, 1, 2, 3], 4)  # a bonus token
        logits[1] = onehot(7)
        assert accept(rule(), draft, logits) == ([0, 1], 7)  # a recovered token
        logits[0] = onehot(6)
        assert accept(rule(), draft, logits) == ([0], 6)
        assert accept(rule(), Draft(TokenTree(0)), [onehot(3)]) == ([0], 3)

    @pytest.mark.parametrize("rule", EXACT)
    def test_tree(self, rule: Any) -> None:
        logits = [onehot(t) for t in (2, 6, 5, 6, 6, 7)]
        assert accept(rule(), Draft(branching()), logits) == ([0, 2, 5], 7)
        logits[2] = onehot(3)  # a token that hangs elsewhere in the tree
        assert accept(rule(), Draft(branching()), logits) == ([0, 2], 3)

    def test_a_drawn_tree_whose_q_is_one_hot(self) -> None:
        """The second child has no probability left in q: it was sure to be proposed."""
        q = np.zeros(VOCAB, dtype=np.float32)
        q[1] = 1
        draft = Draft(branching(), {0: q})
        logits = [onehot(t) for t in (2, 6, 4, 6, 7, 6)]
        assert accept(SpeculativeSampling(), draft, logits) == ([0, 2, 4], 7)


class TestVisits:
    def test_rows_off_the_path_are_never_looked_at(self) -> None:
        """They hold NaN here: whoever reads one loses."""
        nan = np.full(VOCAB, np.nan, dtype=np.float32)
        logits = [onehot(2), nan, onehot(7), nan, nan, nan]
        for rule in EXACT:
            with np.errstate(invalid="raise"):
                assert accept(rule(), Draft(branching()), logits) == ([0, 2], 7)

    @pytest.mark.parametrize("rule", [GumbelCoupling, SampleAndMatch])
    def test_the_next_token_is_the_one_plain_decoding_draws(self, rule: Any) -> None:
        logits = [log([0.2, 0.2, 0.2, 0.2, 0.1, 0.1])] * 6
        for seed in range(40):
            params = SamplingParams(temperature=1, seed=seed)
            path, token = accept(rule(), Draft(branching()), logits, params)
            tokens = [*branching().tokens_on(path[1:]), token]
            plain: list[int] = []
            for _ in tokens:
                sampler = Sampler(params, VOCAB, [0])
                sampler.push(plain)
                ids = np.argsort(-logits[0])[None]
                scored = Pass(0, ids, logits[0][ids], logits[0][None])
                plain.append(sampler.rows(scored, TokenTree(0), Purpose.TARGET).draw(0))
            assert tokens == plain


class TestResidual:
    def test_formulas(self) -> None:
        p = np.array([0.1, 0.2, 0.7], dtype=np.float32)
        q = np.array([0.5, 0.4, 0.1], dtype=np.float32)
        residual = Residual(p, q)
        assert residual.chance(0) == pytest.approx(0.2)
        assert residual.chance(2) > 1
        residual.reject(0)  # p - q = (-, -, 0.6): token 2 is all that is left
        assert residual.chance(1) == 0
        assert residual.chance(2) == pytest.approx(1 / (0.1 / 0.5))
        assert {residual.draw(u) for u in (1e-9, 0.5, 1 - 1e-9)} == {2}

    def test_draws_by_the_share_of_each_token(self) -> None:
        residual = Residual(np.array([0.2, 0, 0.5, 0.3], dtype=np.float32), None)
        drawn = [residual.draw((i + 0.5) / 1000) for i in range(1000)]
        assert np.bincount(drawn).tolist() == [200, 0, 500, 300]

    def test_a_sure_child(self) -> None:
        residual = Residual(np.array([0.1, 0.2, 0.7], dtype=np.float32), None)
        assert residual.chance(1) == pytest.approx(0.2)
        residual.reject(1)
        assert residual.chance(1) == 0
        assert residual.chance(2) == pytest.approx(0.7 / 0.8)
        assert [residual.draw(u) for u in (0.1, 0.13)] == [0, 2]

    def test_p_equal_to_q_always_accepts_and_survives_rounding(self) -> None:
        rng = np.random.default_rng(0)
        p: npt.NDArray[np.float32] = rng.random(1000, dtype=np.float32)
        p /= p.sum()
        residual = Residual(p, p.copy())
        assert residual.chance(17) == pytest.approx(1)
        residual.reject(17)  # cannot happen but by rounding
        assert 0 <= residual.draw(0.5) < 1000
        assert not math.isnan(residual.chance(3))

    def test_arguments_stay_as_they_are(self) -> None:
        p = np.array([0.5, 0.5], dtype=np.float32)
        q = np.array([0.9, 0.1], dtype=np.float32)
        residual = Residual(p, q)
        residual.reject(0)
        residual.reject(1)
        assert p.tolist() == [0.5, 0.5]
        assert q[0] == np.float32(0.9)


class TestThresholds:
    def test_bild(self) -> None:
        row = log([0.5, 0.3, 0.15, 0.05])
        for threshold, token, accepted in [(2, 2, True), (2, 3, False), (5, 3, True)]:
            draft = Draft(TokenTree.chain([0, token]))
            rule = acceptance.rule("bild") if threshold == 2 else BigLittle(threshold)
            path, last = accept(rule, draft, [row, onehot(6)])
            assert (path, last) == (([0, 1], 6) if accepted else ([0], 0))

    def test_the_longest_path_and_of_equals_the_likeliest(self) -> None:
        flat = log([0.2, 0.2, 0.3, 0.2, 0.04, 0.06])
        logits = [flat] * 6
        path, _ = accept(BigLittle(2), Draft(branching()), logits)
        assert path == [0, 1, 3], "4 and 5 are too unlikely, so the branch over 2 is shorter"
        path, _ = accept(BigLittle(5), Draft(branching()), logits)
        assert path == [0, 1, 3], "0.2 * 0.2 is more than 0.3 * 0.06"
        later = [log([0.05, 0.001, 0.4, 0.2, 0.1, 0.249])] * 6
        path, _ = accept(BigLittle(2), Draft(branching()), later)
        assert path == [0, 2, 5], "a token that is refused ends its own branch alone"

    def test_the_likeliest_of_equally_long_paths_wins_wherever_it_stands(self) -> None:
        # Paths over 1 and 3, 2 and 4, 2 and 5; each row makes another one the likeliest.
        for chances, likeliest in (
            ([0.05, 0.4, 0.1, 0.25, 0.1, 0.1], [0, 1, 3]),
            ([0.05, 0.1, 0.4, 0.1, 0.25, 0.1], [0, 2, 4]),
            ([0.05, 0.1, 0.4, 0.1, 0.1, 0.25], [0, 2, 5]),
            # The likeliest first token does not lead to the likeliest path.
            ([0.05, 0.2, 0.4, 0.27, 0.04, 0.04], [0, 1, 3]),
            ([0.05, 0.3, 0.2, 0.05, 0.1, 0.3], [0, 2, 5]),
        ):
            logits = [log(chances)] * 6
            assert accept(BigLittle(5), Draft(branching()), logits, SAMPLED)[0] == likeliest

    def test_of_equally_likely_paths_the_first_wins(self) -> None:
        logits = [log([0.05, 0.2, 0.2, 0.2, 0.2, 0.15])] * 6
        assert accept(BigLittle(5), Draft(branching()), logits, SAMPLED)[0] == [0, 1, 3]


class TestRegistry:
    def test_by_name(self) -> None:
        for name, kind in RULES.items():
            rule = acceptance.rule(name)
            assert isinstance(rule, kind)
            assert rule.name == name
        assert isinstance(acceptance.rule(), GumbelCoupling)

    def test_lossy_rules_say_so(self) -> None:
        assert {name for name, kind in RULES.items() if not kind.lossless} == {"bild"}

    def test_an_unknown_name_is_one_clear_line(self) -> None:
        with pytest.raises(InputError, match=r"^no acceptance rule 'best': expected coupling, "):
            acceptance.rule("best")
        with pytest.raises(InputError, match=r"^acceptance rule 'typical' was removed, since no "):
            acceptance.rule("typical")
