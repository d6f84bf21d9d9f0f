"""The drafter that reads masks: what its rows see, what stays in its session, what it needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from drafting_table import GREEDY, HOT, MASK, PENALISED, VOCAB, MaskedModel, Table

from edgedec.decoding import drafting
from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.policy import CostCurve
from edgedec.decoding.policy.cost import LiveCost
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError
from edgedec.testing import FakeModel


def test_rows_are_those_of_a_fresh_session_that_reads_masks() -> None:
    table = Table("parallel", PENALISED, coupled=False)
    lags = set()
    for round_ in range(25):
        lags.add(len(table.sampler.history) - 1 - table.session.length)
        draft = table.propose(4)
        history, tree = table.sampler.history, draft.tree
        fresh = table.draft.open(400)
        fresh.prefill(history[:-1])
        scored = fresh.forward(TokenTree.chain([history[-1], MASK, MASK, MASK]))
        rows = table.sampler.rows(scored, tree, Purpose.DRAFT)
        assert sorted(draft.q) == list(range(draft.drafted))
        for node, q in draft.q.items():
            np.testing.assert_allclose(q, rows.probs(node), atol=1e-6)
            assert tree.tokens[node + 1] == rows.draw(node)
        table.settle(draft, most=round_ % 6)
    assert len(lags) > 2


def test_a_draft_of_any_length_costs_one_pass() -> None:
    table = Table("parallel", HOT)
    lengths = set()
    for nodes in (1, 2, 3, 5, 8, 12):
        before = table.draft.passes
        draft = table.propose(nodes, nodes)
        lengths.add(draft.drafted)
        assert table.draft.passes - before == draft.passes == 1
        table.settle(draft)
    assert lengths == {1, 2, 3, 5, 8}  # no model is trained to draft more


def test_masks_in_the_session_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = DraftContext.rows

    def forgets(self: DraftContext, tree: TokenTree, masks: Sequence[int] = ()) -> Rows:
        found = rows(self, tree, masks)
        self._own = TokenTree.chain([*self._own.tokens, *masks])
        self._pending = len(self._own.tokens)
        return found

    monkeypatch.setattr(DraftContext, "rows", forgets)
    table = Table("parallel", GREEDY)

    def decode() -> None:
        for _ in range(20):
            table.settle(table.propose(4))

    with pytest.raises(AssertionError):
        decode()


def test_the_hybrid_draws_one_by_one_and_at_once_from_one_session() -> None:
    draft = MaskedModel(VOCAB, seed=1)
    session = draft.open(200)
    drafter = drafting.create("hybrid", DrafterParts(VOCAB, session, mask=MASK))
    assert drafter.arms == ("lookup", "model", "parallel")  # type: ignore[attr-defined]
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    drafter.begin(prompt, Sampler(SamplingParams(), VOCAB, prompt))
    drafter.close()
    plain = drafting.create("hybrid", DrafterParts(VOCAB, draft.open(200)))
    assert plain.arms == ("lookup", "model")  # type: ignore[attr-defined]


def test_a_draft_model_without_a_mask_is_refused() -> None:
    with pytest.raises(InputError, match="pard_token"):
        drafting.create("parallel", DrafterParts(VOCAB, FakeModel(VOCAB).open(8)))


def test_another_tokenizer_is_refused() -> None:
    other = Translation.of_ids([0, 1, 2, -1], 4)
    parts = DrafterParts(4, FakeModel(4).open(8), translation=other, mask=3)
    with pytest.raises(InputError, match="target's tokenizer"):
        drafting.create("parallel", parts)


def test_only_the_first_look_costs_time() -> None:
    curve, gains = CostCurve((1, 2, 3, 4), (1.0, 1.1, 1.2, 1.3)), []
    for at_once in (True, False):
        drafter = DrafterEstimate("parallel", 0.2, branching=False, at_once=at_once)
        for bin_ in drafter.bins:
            bin_.chance = 0.6
        drafter.plan(LiveCost(curve, 3), 1.0)
        gains.append(drafter.gain)
    assert gains[0] == pytest.approx(0.6 + 0.36 + 0.216 - 0.3 - 0.2, abs=0.15)
    assert gains[1] < gains[0] - 0.1
