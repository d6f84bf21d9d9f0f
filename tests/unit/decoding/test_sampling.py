"""Rows against a reference that sorts everything in float64, and along every path."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from edgedec.decoding.randomness import Purpose
from edgedec.decoding.ranking import Scored
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams, filters
from edgedec.decoding.sampling.state import Penalties
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError, SessionError, StateError

VOCAB = 300
PROMPT = [5, 7, 5, 9]


def scored(logits: FloatArray, *, top_k: int = 8, top_only: bool = False, start: int = 0) -> Pass:
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    return Pass(start, ids, np.take_along_axis(logits, ids, 1), None if top_only else logits)


def random_logits(rows: int, seed: int = 0, *, ties: bool = False) -> FloatArray:
    rng = np.random.default_rng(seed)
    logits = (3 * rng.standard_normal((rows, VOCAB))).astype(np.float32)
    if ties:
        logits = np.round(logits)
    logits[:, -3:] = -np.inf  # columns that are no token
    return logits


def rows_of(params: SamplingParams, logits: FloatArray, **given: Any) -> Rows:
    sampler = Sampler(params, VOCAB, PROMPT, coupled=given.pop("coupled", True))
    tree = TokenTree.chain([PROMPT[-1], *range(len(logits) - 1)])
    return sampler.rows(scored(logits, **given), tree, Purpose.TARGET)


def reference(logits: FloatArray, params: SamplingParams) -> np.ndarray[Any, Any]:
    """Temperature, top-k, top-p, min-p by sorting the whole row, float64."""
    scaled = logits * np.float32(1 / params.temperature)
    order = sorted(range(len(scaled)), key=lambda i: (-scaled[i], i))
    chances = np.exp(scaled.astype(np.float64) - scaled.max())
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        total, reached, kept = sum(chances[i] for i in order), 0.0, []
        for i in order:
            kept.append(i)
            reached += chances[i]
            if reached >= params.top_p * total:
                break
        order = kept
    order = [i for i in order if chances[i] >= params.min_p * chances[order[0]]]
    result = np.zeros(len(scaled))
    result[order] = chances[order] / chances[order].sum()
    return result


FILTERS = [
    {},
    {"top_k": 1},
    {"top_k": 12},
    {"top_k": VOCAB},
    {"top_k": 10**6},
    {"top_p": 0.2},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.7},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.1},
]


class TestFilters:
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
    @pytest.mark.parametrize("chosen", FILTERS, ids=str)
    def test_probs_match_the_reference(
        self, chosen: dict[str, Any], temperature: float, ties: bool
    ) -> None:
        params = SamplingParams(temperature=temperature, seed=1, **chosen)
        for row in random_logits(6, seed=3, ties=ties):
            probs, expected = rows_of(params, row[None]).probs(0), reference(row, params)
            np.testing.assert_array_equal(probs > 0, expected > 0)
            np.testing.assert_allclose(probs, expected, atol=1e-6)

    def test_ties_keep_the_lowest_ids(self) -> None:
        row = np.zeros(VOCAB, dtype=np.float32)
        assert filters.largest(row, 4).tolist() == [0, 1, 2, 3]
        assert filters.nucleus(row, 2.5 / VOCAB).tolist() == [0, 1, 2]
        row[200] = 1
        assert filters.ranked(row, 3).tolist() == [200, 0, 1]

    def test_columns_that_are_no_token_never_survive(self) -> None:
        row = np.full(VOCAB, -np.inf, dtype=np.float32)
        row[[3, 8]] = 1
        assert filters.largest(row, 5).tolist() == [3, 8]
        assert filters.ranked(row, 5).tolist() == [3, 8]
        assert rows_of(SamplingParams(temperature=1, seed=0), row[None]).best(0, 9).size == 2


class TestDraw:
    @pytest.mark.parametrize("chosen", FILTERS, ids=str)
    def test_is_the_argmax_of_log_p_and_the_full_noise(self, chosen: dict[str, Any]) -> None:
        """Noise made for the survivors alone is the same noise."""
        params = SamplingParams(temperature=0.9, seed=11, **chosen)
        logits = random_logits(40)
        rows = rows_of(params, logits)
        streams = Sampler(params, VOCAB, PROMPT).streams
        for node in range(len(logits)):
            noise = streams.noise(len(PROMPT) + node, VOCAB, Purpose.TARGET).all()
            with np.errstate(divide="ignore"):
                race = np.log(reference(logits[node], params)) + noise
            best = np.argsort(-race)[: int((race > -np.inf).sum())][:5]
            assert rows.draw(node) == best[0]
            assert rows.best(node, 5).tolist() == best.tolist()

    def test_greedy_is_the_argmax_and_ties_go_to_the_lowest_id(self) -> None:
        logits = random_logits(30, ties=True)
        for top_only in (True, False):
            rows = rows_of(SamplingParams(), logits, top_only=top_only)
            assert [rows.draw(i) for i in range(30)] == logits.argmax(axis=1).tolist()
            assert rows.best(4, 3).tolist() == np.argsort(-logits[4], kind="stable")[:3].tolist()

    def test_greedy_best_beyond_the_top_needs_logits(self) -> None:
        logits = random_logits(1)
        ranked = np.argsort(-logits[0], kind="stable")[:12].tolist()
        assert rows_of(SamplingParams(), logits).best(0, 12).tolist() == ranked
        assert rows_of(SamplingParams(), logits, top_only=True).best(0, 12).tolist() == ranked[:8]

    def test_greedy_probs_are_one_hot(self) -> None:
        logits = random_logits(1)
        probs = rows_of(SamplingParams(), logits, top_only=True).probs(0)
        assert probs.sum() == 1
        assert probs[logits[0].argmax()] == 1

    def test_coupled_draft_has_the_targets_noise_and_an_uncoupled_one_its_own(self) -> None:
        params, logits = SamplingParams(temperature=1, seed=3), random_logits(30)
        drawn = {}
        for coupled in (True, False):
            for purpose in (Purpose.TARGET, Purpose.DRAFT):
                sampler = Sampler(params, VOCAB, PROMPT, coupled=coupled)
                rows = sampler.rows(scored(logits), TokenTree.chain(list(range(30))), purpose)
                drawn[coupled, purpose] = [rows.draw(node) for node in range(30)]
        assert drawn[True, Purpose.DRAFT] == drawn[True, Purpose.TARGET]
        assert drawn[False, Purpose.TARGET] == drawn[True, Purpose.TARGET]
        assert drawn[False, Purpose.DRAFT] != drawn[True, Purpose.TARGET]

    def test_uncoupled_siblings_have_noise_of_their_own(self) -> None:
        """How far one is expanded may depend on the other's draw: shared noise would bias."""
        flat = np.zeros((3, VOCAB), dtype=np.float32)
        tree = TokenTree(1)
        tree.add(2, 0)
        tree.add(3, 0)
        sampler = Sampler(SamplingParams(temperature=1, seed=3), VOCAB, PROMPT, coupled=False)
        rows = sampler.rows(scored(flat), tree, Purpose.DRAFT)
        assert rows.best(1, 8).tolist() != rows.best(2, 8).tolist()
        plain = sampler.rows(scored(flat), tree, Purpose.TARGET)
        assert plain.best(1, 8).tolist() == plain.best(2, 8).tolist()

    def test_a_pass_that_starts_deeper(self) -> None:
        logits, params = random_logits(5), SamplingParams(temperature=1, seed=2)
        whole = rows_of(params, logits)
        sampler = Sampler(params, VOCAB, PROMPT)
        part = sampler.rows(
            scored(logits[3:], start=3), TokenTree.chain([9, 0, 1, 2, 3]), Purpose.TARGET
        )
        assert [part.draw(3), part.draw(4)] == [whole.draw(3), whole.draw(4)]


class PathBlind(Penalties):
    """A broken twin: penalties that know the text but not the path to a node."""

    def applied(self, logits: FloatArray, path: Any) -> FloatArray:
        return super().applied(logits, [])


PENALTIES = [
    {"repetition_penalty": 1.7},
    {"presence_penalty": 1.1},
    {"frequency_penalty": 0.9},
    {"repetition_penalty": 0.6, "presence_penalty": -0.5, "frequency_penalty": 1.5},
]


PENALISED = {"logit_bias": {3: 1.0}, "repetition_penalty": 1.2}


class TestLogitsThatAreNoNumbers:
    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize("start", [0, 2])
    @pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
    def test_are_refused_by_greedy_where_they_are_looked_at(
        self, value: float, start: int, *, whole: bool
    ) -> None:
        logits = random_logits(4)
        logits[1] = value
        passes: list[Pass] = [scored(logits, top_only=not whole, start=start)]
        passes += [Scored(start, logits, 8, Want.LOGITS)] if whole else []
        for given in passes:
            tree = TokenTree.chain([PROMPT[-1], *range(start + 3)])
            for changes in ({}, PENALISED) if whole else ({},):
                sampler = Sampler(SamplingParams(**changes), VOCAB, PROMPT)
                rows = sampler.rows(given, tree, Purpose.DRAFT)
                for node in (0, 2, 3):
                    assert rows.draw(start + node) == rows.best(start + node, 3)[0]
                for look in (rows.draw, partial(rows.best, count=3)):
                    with (
                        np.errstate(invalid="ignore"),
                        pytest.raises(SessionError, match="the draft's logits are NaN"),
                    ):
                        look(start + 1)

    @pytest.mark.parametrize("place", [0, 9, VOCAB - 1])
    def test_one_is_enough_for_greedy(self, place: int) -> None:
        logits = random_logits(2)
        logits[1, place] = np.nan
        sampler = Sampler(SamplingParams(), VOCAB, PROMPT)
        rows = sampler.rows(Scored(0, logits, 8, Want.TOP), TokenTree.chain([9, 1]), Purpose.TARGET)
        assert rows.draw(0) == int(logits[0].argmax())
        with pytest.raises(SessionError):
            rows.draw(1)
        # TopK leaves a NaN where it stumbled over it, the order of the others is chance.
        ids, best = np.array([[6, 7, 2]]), np.array([[1.3, np.nan, 0.6]], np.float32)
        with pytest.raises(SessionError):
            sampler.rows(Pass(0, ids, best, None), TokenTree(9), Purpose.TARGET).draw(0)

    @pytest.mark.parametrize("chosen", FILTERS, ids=str)
    @pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
    def test_are_refused(self, chosen: dict[str, Any], value: float) -> None:
        logits = np.full((1, VOCAB), value, dtype=np.float32)
        rows = rows_of(SamplingParams(temperature=1, seed=1, **chosen), logits)
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(SessionError, match="the target's logits are NaN"),
        ):
            rows.draw(0)

    def test_one_is_enough(self) -> None:
        logits = random_logits(1)
        logits[0, 9] = np.nan
        with pytest.raises(SessionError):
            rows_of(SamplingParams(temperature=1, seed=1), logits).draw(0)


class TestPenalties:
    def paths_agree(self, params: SamplingParams, twin: type[Penalties] | None = None) -> bool:
        """Every node's row against a sampler to which the node's path was pushed."""
        tree = TokenTree(PROMPT[-1])
        for token, parent in [(20, 0), (21, 0), (20, 1), (5, 2), (21, 4), (20, 3), (250, 3)]:
            tree.add(token, parent)
        logits = random_logits(len(tree), seed=4)
        logits[:, [5, 20, 21, 250]] += 10  # a penalty on these changes the ranking
        sampler = Sampler(params, VOCAB, PROMPT)
        if twin is not None:
            sampler.penalties = twin(params, PROMPT)
        sampler.push([21, 30, 21])
        rows = sampler.rows(scored(logits), tree, Purpose.TARGET)
        equal = True
        for node in reversed(range(len(tree))):
            plain = Sampler(params, VOCAB, PROMPT)
            plain.push([21, 30, 21])
            plain.push(tree.tokens_on(tree.path_to(node)[1:]))
            alone = plain.rows(scored(logits[[node]]), TokenTree(0), Purpose.TARGET)
            equal &= np.array_equal(rows.probs(node), alone.probs(0))
            equal &= np.array_equal(rows.best(node, 99), alone.best(0, 99))
        return equal

    @pytest.mark.parametrize("temperature", [0, 0.7])
    @pytest.mark.parametrize("chosen", PENALTIES, ids=str)
    def test_follow_each_nodes_own_path(self, chosen: dict[str, Any], temperature: float) -> None:
        params = SamplingParams(temperature=temperature, seed=1, logit_bias={3: 2.5}, **chosen)
        assert self.paths_agree(params)
        assert not self.paths_agree(params, PathBlind), "the twin must be caught"

    def test_formulas(self) -> None:
        params = SamplingParams(
            repetition_penalty=2, presence_penalty=0.25, frequency_penalty=0.5, logit_bias={9: 3}
        )
        penalties = Penalties(params, PROMPT)
        penalties.push([6, 6, 5])
        row = np.zeros(VOCAB, dtype=np.float32)
        row[[5, 6, 7, 8, 9]] = [4, -4, 3, 3, -1]
        after = penalties.applied(row, [])
        # 5: in prompt and text; 6: twice in the text; 7: prompt only; 8: nowhere; 9: biased.
        np.testing.assert_allclose(after[[5, 6, 7, 8, 9]], [2 - 0.75, -8 - 1.25, 1.5, 3, 1])
        assert row[5] == 4, "the row itself is a view of the session's buffer"

    def test_many_tokens(self) -> None:
        """The tables grow, and paths that come and go leave nothing behind."""
        params = SamplingParams(frequency_penalty=1)
        penalties = Penalties(params, [0])
        rng = np.random.default_rng(0)
        text: list[int] = []
        for _ in range(60):
            more = rng.integers(0, VOCAB, 7).tolist()
            penalties.applied(np.zeros(VOCAB, dtype=np.float32), rng.integers(0, VOCAB, 9).tolist())
            penalties.push(more)
            text += more
        after = penalties.applied(np.zeros(VOCAB, dtype=np.float32), [])
        np.testing.assert_array_equal(-after, np.bincount(text, minlength=VOCAB))


class TestOwnDistribution:
    """Entropy, confidence and logprobs are the model's own: nothing the user chose changes them."""

    @pytest.mark.parametrize(
        "params",
        [
            SamplingParams(),
            SamplingParams(temperature=0.5, top_k=3, seed=1),
            SamplingParams(logit_bias={3: 9.0}, repetition_penalty=2, presence_penalty=1),
        ],
        ids=["greedy", "filtered", "penalised"],
    )
    def test_against_float64(self, params: SamplingParams) -> None:
        logits = random_logits(3)
        rows = rows_of(params, logits)
        for node, row in enumerate(logits.astype(np.float64)):
            logs = row - row.max() - math.log(np.exp(row - row.max()).sum())
            assert rows.logprob(node, 17) == pytest.approx(logs[17], abs=1e-5)
            best = np.argsort(-logs)[:4]
            top = rows.top_logprobs(node, 4)
            assert [token for token, _ in top] == best.tolist()
            np.testing.assert_allclose([value for _, value in top], logs[best], atol=1e-5)

    def test_of_the_top_alone(self) -> None:
        logits = random_logits(1)
        top = rows_of(SamplingParams(), logits, top_only=True)
        with pytest.raises(StateError, match=r"Want\.LOGITS"):
            top.logprob(0, 1)


class TestLazy:
    def test_a_row_nobody_visits_costs_nothing(self) -> None:
        with mock.patch.object(filters, "survivors", wraps=filters.survivors) as filtering:
            rows = rows_of(SamplingParams(temperature=1, top_p=0.9, seed=1), random_logits(6))
            filtering.assert_not_called()
            rows.draw(2)
            rows.probs(2)
            rows.best(2, 3)
            filtering.assert_called_once()

    @pytest.mark.parametrize(
        ("params", "want"),
        [
            (SamplingParams(), Want.TOP),
            (SamplingParams(top_k=5, top_p=0.5), Want.TOP),
            (SamplingParams(temperature=0.1), Want.LOGITS),
            (SamplingParams(repetition_penalty=1.1), Want.LOGITS),
            (SamplingParams(presence_penalty=-1), Want.LOGITS),
            (SamplingParams(logit_bias={0: 0.0}), Want.LOGITS),
        ],
    )
    def test_asks_for_logits_only_when_it_needs_them(
        self, params: SamplingParams, want: Want
    ) -> None:
        assert Sampler(params, VOCAB, PROMPT).want == want


class TestInput:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -1),
            ("temperature", math.nan),
            ("temperature", math.inf),
            ("temperature", 1e-9),
            ("top_k", -1),
            ("top_k", 2.5),
            ("top_p", 0),
            ("top_p", 1.01),
            ("top_p", math.nan),
            ("min_p", -0.1),
            ("min_p", 1.5),
            ("repetition_penalty", 0),
            ("repetition_penalty", math.inf),
            ("presence_penalty", math.nan),
            ("frequency_penalty", math.inf),
            ("logit_bias", {4: math.nan}),
            ("logit_bias", {4: math.inf}),
            ("seed", 1.5),
        ],
    )
    def test_out_of_range_is_one_clear_line(self, name: str, value: Any) -> None:
        with pytest.raises(InputError, match=f"^{name}[^\n]*expected [^\n]+$"):
            SamplingParams(**{name: value})

    def test_ids_outside_the_vocabulary(self) -> None:
        with pytest.raises(InputError, match="logit_bias: token 300: expected 0 to 299"):
            Sampler(SamplingParams(logit_bias={300: 1}), VOCAB, PROMPT)
        with pytest.raises(InputError, match="prompt: token -1"):
            Sampler(SamplingParams(), VOCAB, [3, -1])
        with pytest.raises(InputError, match="prompt is empty"):
            Sampler(SamplingParams(), VOCAB, [])

    def test_a_missing_seed_is_drawn_and_reported(self) -> None:
        seeds = {Sampler(SamplingParams(), VOCAB, PROMPT).streams.seed for _ in range(5)}
        assert len(seeds) > 1
        assert Sampler(SamplingParams(seed=7), VOCAB, PROMPT).streams.seed == 7
