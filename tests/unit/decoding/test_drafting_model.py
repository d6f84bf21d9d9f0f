"""The drafters that own a draft session: what they hold, what they draw, how they recover."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from drafting_table import HOT, PENALISED, PROMPT, VOCAB, Table
from kinds import each_once

from edgedec.decoding import drafting
from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.base import DrafterParts, DraftStep, states_of
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.session import OnChunk, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError, Interrupted, StateError
from edgedec.testing import FakeModel, FakeSession

WITH_MODEL = ["model", "parallel", "tree", "hybrid", "adaptive"]


@pytest.mark.parametrize("name", WITH_MODEL)
def test_sessions_stay_right_whatever_is_accepted(name: str) -> None:
    rng = np.random.default_rng(0)
    table = Table(name, HOT)
    for _ in range(60):
        nodes, depth = int(rng.integers(0, 7)), int(rng.integers(1, 5))
        most, cut = int(rng.integers(0, 6)), int(rng.integers(1, 6))
        table.settle(table.propose(nodes, depth), most, cut)


def test_draft_rows_are_those_of_a_fresh_session() -> None:
    # Any row or position that is off by the tokens caught up with would show here.
    table = Table("model", PENALISED, coupled=False)
    lags = set()
    for round_ in range(25):
        lags.add(len(table.sampler.history) - 1 - table.session.length)
        draft = table.propose(4)
        history, tree = table.sampler.history, draft.tree
        assert sorted(draft.q) == list(range(draft.drafted))
        for node, q in draft.q.items():
            fresh = table.draft.open(400)
            fresh.prefill(history[:-1])
            rows = table.sampler.rows(fresh.forward(tree), tree, Purpose.DRAFT)
            np.testing.assert_allclose(q, rows.probs(node), atol=1e-6)
            assert tree.tokens[node + 1] == rows.draw(node)
        table.settle(draft, most=round_ % 6)
    assert {0, 1} <= lags


def test_a_round_costs_as_many_passes_as_tokens_even_when_it_catches_up() -> None:
    table = Table("model")
    for _ in range(12):
        before = table.draft.passes
        draft = table.propose(3)
        assert table.draft.passes - before == draft.passes == draft.drafted == 3
        table.settle(draft)


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_draft_that_nobody_judged_is_not_saved(name: str) -> None:
    """As after a text that was left in the middle of a round."""
    table, other, file = Table(name), Table(name), io.BytesIO()
    table.settle(table.propose(3))
    read = table.session.length
    assert table.propose(3).drafted
    states_of(table.drafter)["draft"].save(file)
    assert table.session.length == read
    file.seek(0)
    text = table.sampler.history
    states_of(other.drafter)["draft"].load(file, text)
    assert other.session.length == read
    table.drafter.begin(text, table.sampler)  # and it goes on
    assert table.propose(3).drafted


def test_the_hybrid_draft_lags_for_nothing_and_catches_up_with_all_it_missed() -> None:
    table = Table("hybrid", prompt=[7, 2, 9, 4, 7, 2, 9])
    # The target is made to agree with the lookup: the loop pushes what it proposes.
    assert table.propose(3).source == "lookup"
    for _ in range(6):
        table.sampler.push([4, 7, 2, 9])
    assert table.draft.passes == 0
    assert table.session.length == 0
    table.sampler.push([1, 8, 8])
    table.scorer.prefill(table.sampler.history[table.scorer.length : -1])
    draft = table.propose(3)
    assert draft.source == "model"
    assert table.draft.passes == draft.passes == 3
    fresh = Table("model", prompt=table.sampler.history)
    assert fresh.propose(3).tree.tokens == draft.tree.tokens
    table.settle(draft)


def test_a_short_lag_rides_along_and_a_long_one_is_prefilled() -> None:
    for lag in (0, 1, 2, 7, 8, 9, 30):
        table = Table("model")
        table.settle(table.propose(3), most=0)
        extra = [(5 * i + 1) % VOCAB for i in range(lag)]
        table.sampler.push(extra)
        table.scorer.prefill(table.sampler.history[table.scorer.length : -1])
        fresh = Table("model", prompt=table.sampler.history)
        assert table.propose(4).tree.tokens == fresh.propose(4).tree.tokens
        table.settle(table.propose(4))


@pytest.mark.parametrize("name", ["model", "tree"])
def test_a_long_prompt_is_read_over_several_rounds(name: str) -> None:
    table = Table(name, prompt=[(7 * i + 3) % 13 for i in range(70)], prefill_at_once=20)
    read, drafted = [], []
    for _ in range(6):
        draft = table.propose(3)
        read.append(table.session.length)
        drafted.append(draft.drafted > 0)
        table.settle(draft)
    assert read[:3] == [20, 40, 60]
    assert drafted == [False, False, False, True, True, True]
    # Not even looked at when nothing may be drafted.
    table = Table(name, prompt=[1] * 70)
    table.propose(0)
    assert table.session.length == 0


class TestBeyondTheCapacity:
    """A text longer than the draft's session: its first four tokens and its end are seen."""

    @pytest.mark.parametrize(("name", "length"), each_once(WITH_MODEL, [200, 0]))
    def test_drafting_goes_on_and_the_session_holds_the_window(
        self, name: str, length: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Table, "check", sees_both_ends)
        prompt = [*PROMPT, *((7 * i) % 11 for i in range(length))]
        table = Table(name, capacity=48, prompt=prompt)
        drafted = accepted = rounds = 0
        while len(table.sampler.history) < len(prompt) + 300:
            draft = table.propose(5, 5)
            drafted += draft.drafted
            accepted += table.settle(draft)
            rounds += 1
        assert drafted > 3 * rounds
        # The draft looks at the last three tokens, so what is left out does not matter to it.
        assert accepted / drafted > 0.8 * of_a_larger_session(name, prompt)

    def test_each_token_is_read_about_once_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Table, "check", sees_both_ends)
        table = Table("model", capacity=64)
        read = 0
        honest = table.session.prefill

        def counted(tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
            nonlocal read
            read += len(tokens)
            honest(tokens, on_chunk)

        table.session.prefill = counted  # type: ignore[method-assign]
        while len(table.sampler.history) < 1000:
            table.settle(table.propose(4, 4))
        assert 0.5 < read / 1000 < 1.5

    def test_a_shorter_text_is_seen_whole_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Table, "check", sees_both_ends)
        table = Table("model", capacity=48, prompt=[*PROMPT, *[5, 6] * 60])
        table.settle(table.propose(4))
        table.begin(PROMPT)
        draft = table.propose(3)
        assert draft.drafted == 3
        assert table.session._committed == PROMPT[:-1][: len(table.session._committed)]

    def test_a_shorter_text_that_begins_alike_is_seen_whole(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The session then holds the first four tokens alone, which both texts have."""
        monkeypatch.setattr(Table, "check", sees_both_ends)
        table = Table("model", capacity=48, prompt=[*PROMPT, *[5, 6] * 60])
        table.propose(4, go_on=lambda step: False)
        assert table.session.length <= 4
        short = [*PROMPT, 7, 8, 9, 10, 7, 8]
        table.begin(short)
        table.settle(table.propose(3))
        assert table.session._committed[: len(short)] == short

    @pytest.mark.parametrize("name", WITH_MODEL)
    def test_a_session_too_small_to_leave_anything_out_rests(self, name: str) -> None:
        table = Table(name, capacity=20)
        drafted = []
        while len(table.sampler.history) < 40:
            draft = table.propose(5, 5)
            drafted.append((len(table.sampler.history), draft.source, draft.drafted))
            table.settle(draft)
        assert all(n > 0 for size, _, n in drafted if size <= 20)
        others = {"lookup", "recycle"}
        assert all(n == 0 for size, source, n in drafted if size > 20 and source not in others)
        assert table.sampler.history[:40] == table.plain(40)[:40]
        table.begin(PROMPT)
        assert table.propose(3).drafted > 0


def sees_both_ends(table: Table) -> None:
    """The draft session holds the beginning of the text, or its first four tokens and the end."""
    held, text = table.session._committed, table.sampler.history
    assert held[:4] == text[:4][: len(held)]
    after = held[4:]
    assert not after or any(
        text[start : start + len(after)] == after for start in range(4, len(text) - len(after))
    )
    assert table.session._pending == 0


def of_a_larger_session(name: str, prompt: Sequence[int]) -> float:
    table = Table(name, capacity=2000, prompt=prompt)
    drafted = accepted = 0
    while len(table.sampler.history) < len(prompt) + 300:
        draft = table.propose(5, 5)
        drafted += draft.drafted
        accepted += table.settle(draft)
    return accepted / drafted


def test_the_last_place_of_the_session_is_used() -> None:
    table = Table("model", capacity=len(PROMPT) + 2)
    assert table.propose(9, 9).drafted == 3
    assert table.session._pending + table.session.length == table.session.capacity


@pytest.mark.parametrize("name", WITH_MODEL)
def test_no_limits_no_draft_no_pass(name: str) -> None:
    table = Table(name)
    for limits in ((0, 5), (5, 0), (0, 0)):
        assert table.propose(*limits).drafted == 0
    assert table.draft.passes == 0
    assert table.session.length == 0


def test_the_policy_is_asked_before_each_draw_and_pays_for_what_it_asks() -> None:
    table = Table("model")
    seen: list[tuple[int, int]] = []

    def three(step: DraftStep) -> bool:
        seen.append((step.depth, table.draft.passes))
        return step.depth < 3

    assert table.propose(9, 9, three).drafted == 3
    # Asked at depth 3 without a fourth pass.
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]

    def curious(step: DraftStep) -> bool:
        return step.offer.confidence() > 1

    draft = table.propose(9, 9, curious)
    assert draft.drafted == 0
    assert draft.passes == 1
    table.settle(draft)
    # The pass was not in vain: the root is computed.
    assert table.session.length == len(PROMPT)


def test_confidence_is_of_the_next_tokens_distribution() -> None:
    table = Table("model", HOT)
    row: list[float] = []

    def look(step: DraftStep) -> bool:
        row.append(step.offer.confidence())
        return False

    table.propose(4, 4, look)
    logits = table.draft.logits(PROMPT).astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum()
    assert p.max() <= row[0] <= p.max() / np.sort(p)[-8:].sum() + 1e-6


@pytest.mark.parametrize("context", [3, None])
def test_at_every_depth_the_figures_are_of_the_next_token(context: int | None) -> None:
    table = Table("model", HOT, context=context)
    seen: list[float] = []

    def look(step: DraftStep) -> bool:
        seen.append(step.offer.confidence())
        return True

    tree = table.propose(6, 6, look).tree
    assert len(seen) == len(tree) - 1 == 6
    for depth, confidence in enumerate(seen):
        logits = table.draft.logits([*PROMPT, *tree.tokens[1 : depth + 1]]).astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum()
        assert confidence == pytest.approx(p.max() / np.sort(p)[-8:].sum(), rel=1e-4)
    assert len(set(seen)) == 6, "no two depths look alike"


@pytest.mark.parametrize("name", WITH_MODEL)
def test_closing_a_drafter_closes_its_session(name: str) -> None:
    table = Table(name)
    table.propose(3)
    table.drafter.close()
    with pytest.raises(StateError, match="closed"):
        table.session.prefill([1])


@pytest.mark.parametrize("name", ["model", "lookup"])
def test_the_token_to_come_is_known_where_noise_is_shared(name: str) -> None:
    text = [7, 2, 9, 4, 1, 7, 2, 9]
    told: list[int] = []

    def look(step: DraftStep) -> bool:
        assert step.offer.token is not None
        told.append(step.offer.token())
        return True

    draft = Table(name, HOT, prompt=text).propose(4, 4, look)
    assert draft.tree.tokens[1:] == told
    assert len(told) == 4

    def blind(step: DraftStep) -> bool:
        assert (step.offer.token is None) == (name == "model")
        return True

    Table(name, HOT, prompt=text, coupled=False).propose(4, 4, blind)


def test_a_new_prompt_reuses_what_it_shares() -> None:
    table = Table("model")
    table.settle(table.propose(3))
    for prompt in ([*PROMPT[:5], 7, 7], [*PROMPT, 1, 2, 3], PROMPT[:1], [8, 8, 8]):
        table.begin(prompt)
        draft = table.propose(3)
        assert draft.tree.tokens == Table("model", prompt=prompt).propose(3).tree.tokens
        table.settle(draft)
        table.check()
    read: list[int] = []
    table.begin([*PROMPT, *PROMPT])
    table.settle(table.propose(2), most=0)
    prefill = table.session.prefill
    table.session.prefill = lambda tokens, on_chunk=None: (  # type: ignore[method-assign]
        read.extend(tokens),
        prefill(tokens, on_chunk),
    )[1]
    table.begin([*PROMPT, *PROMPT[:4], *range(12)])
    table.propose(2)
    assert read == [*range(11)]


@pytest.mark.parametrize("name", ["model", "tree"])
def test_interrupted_and_used_again(name: str) -> None:
    long = [(7 * i + 3) % 13 for i in range(30)] + [15]
    table, calm = Table(name, prompt=long), Table(name, prompt=long)
    for passes in range(3):
        # Interrupts the prefill first, then a pass with nodes pending.
        def stop(step: DraftStep, when: int = passes) -> bool:
            if step.depth == when:
                table.session.interrupt()
            return True

        with pytest.raises(Interrupted):
            table.propose(30, 4, stop)
        draft, other = table.propose(4), calm.propose(4)
        assert draft.tree.tokens == other.tree.tokens
        table.settle(draft)
        calm.settle(other)


def test_a_round_that_was_never_settled_leaves_no_trace() -> None:
    table = Table("model", HOT)
    first = table.propose(4)
    assert table.propose(4).tree.tokens == first.tree.tokens
    # The target failed; the caller drops the round and goes on with another text.
    table.begin([1, 2, 3])
    table.settle(table.propose(4))


def test_a_model_is_needed() -> None:
    for name in WITH_MODEL:
        with pytest.raises(InputError, match="draft model"):
            drafting.create(name, DrafterParts(VOCAB))
    session = FakeModel(VOCAB).open(9)
    with pytest.raises(InputError, match="only chains"):
        drafting.create("tree", DrafterParts(VOCAB, session, branches=1))


# -- twins that must fail ---------------------------------------------------------------------


class NeverCatchesUp(DraftContext):
    def _open(self, tree: TokenTree) -> None:
        super()._open(tree)
        self._own, self._lag = tree, 0


class SeesTheWrongRows(DraftContext):
    def _forward(self, tree: TokenTree, masks):  # type: ignore[no-untyped-def]
        rows, sampler = super()._forward(tree, masks), self._sampler
        if self._lag and self._passes == 1:
            assert sampler is not None
            self._session.rollback(len(self._held))
            scored = self._session.forward(self._own, 0, Want.LOGITS)
            rows = sampler.rows(scored, tree, Purpose.DRAFT)
        return rows


class KeepsRejectedTokens(DraftContext):
    def keep(self, tree: TokenTree, path: Sequence[int]) -> None:
        super().keep(tree, list(range(len(tree))))


class ForgetsToRollBack(FakeSession):
    def rollback(self, length: int) -> None:
        self._tree, self._pending = None, 0


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        (NeverCatchesUp, test_draft_rows_are_those_of_a_fresh_session),
        (SeesTheWrongRows, test_draft_rows_are_those_of_a_fresh_session),
        (
            KeepsRejectedTokens,
            lambda: test_sessions_stay_right_whatever_is_accepted("model"),
        ),
    ],
)
def test_the_checks_catch_a_broken_context(
    twin: type[DraftContext], test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.decoding.drafting.model.DraftContext", twin)
    with pytest.raises(AssertionError):
        test()


def test_the_checks_catch_a_session_that_does_not_roll_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeModel, "open", lambda self, capacity: ForgetsToRollBack(self, capacity))
    with pytest.raises(AssertionError):
        test_a_new_prompt_reuses_what_it_shares()
