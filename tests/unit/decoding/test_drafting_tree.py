"""DySpec's layered rule: which slots are filled, with what, and by which distribution."""

from __future__ import annotations

import numpy as np
import pytest
from drafting_table import HOT, PENALISED, PROMPT, VOCAB, Table

from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.drafting.tree import RankCalibration, TreeDrafter
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import SamplingParams


@pytest.mark.parametrize("params", [HOT, PENALISED], ids=["hot", "penalised"])
def test_a_tree_draft_is_drawn_without_replacement_by_its_own_q(params: SamplingParams) -> None:
    table = Table("tree", params, coupled=False)
    branched = 0
    for _ in range(20):
        draft = table.propose(8, 3)
        tree = draft.tree
        parents = {p for p in tree.parents if p >= 0}
        assert parents <= set(draft.q)
        fresh = table.draft.open(400)
        fresh.prefill(table.sampler.history[:-1])
        rows = table.sampler.rows(fresh.forward(tree), tree, Purpose.DRAFT)
        for node in parents:
            np.testing.assert_allclose(draft.q[node], rows.probs(node), atol=1e-6)
            children = tree.tokens_on(tree.children(node))
            assert children == rows.best(node, len(children)).tolist()
            branched += len(children) > 1
        table.settle(draft)
    assert branched > 10


@pytest.mark.parametrize("threshold", [0.05, 0.15, 0.4])
def test_a_tree_fills_exactly_the_slots_above_the_threshold(threshold: float) -> None:
    # From the definition, slot by slot, with the greedy draft's own probabilities.
    table = Table("tree")
    table.drafter = TreeDrafter(DrafterParts(VOCAB, table.draft.open(400)), threshold)
    table.begin(PROMPT)
    tree = table.propose(1000, 3).tree
    expected = []

    def expand(tokens: list[int], value: float) -> None:
        row = np.sort(table.draft.logits([*PROMPT, *tokens]).astype(np.float64))[::-1][:8]
        ids = np.argsort(-table.draft.logits([*PROMPT, *tokens]), kind="stable")
        chances, slot = np.exp(row) / np.exp(row).sum(), value
        for rank in range(8):
            if slot <= threshold or len(tokens) == 3:
                return
            expected.append([*tokens, int(ids[rank])])
            expand(expected[-1], value * chances[rank])
            slot -= value * chances[rank]

    expand([], 1.0)
    got = [tree.tokens_on(tree.path_to(node)[1:]) for node in range(1, len(tree))]
    assert sorted(got) == sorted(expected)


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("limits", [(3, None), (None, 3), (5, 3), (9, 9)])
def test_no_more_branches_than_both_models_take(
    limits: tuple[int | None, int | None], *, coupled: bool
) -> None:
    params = SamplingParams(temperature=2.0, seed=1)
    whole = Table("tree", params, coupled=coupled).propose(40, 4).tree
    assert whole.leaves > 9
    table, (branches, draft_branches) = Table("tree", params, coupled=coupled), limits
    most = min(limit for limit in limits if limit)
    session = table.draft.open(400)
    parts = DrafterParts(VOCAB, session, branches, draft_branches=draft_branches)
    table.drafter = TreeDrafter(parts)
    table.begin(PROMPT)
    for _ in range(5):
        draft = table.propose(40, 4)
        assert draft.tree.leaves == most
        assert draft.drafted > most
        table.settle(draft)


def test_a_limit_on_nodes_drops_the_least_likely() -> None:
    small, large = Table("tree").propose(5, 3), Table("tree").propose(20, 3)
    assert small.drafted == 5
    assert 1 < large.passes == max(large.tree.depths) == 3
    assert len(large.tree) > 6


def test_rank_calibration_starts_from_the_probabilities_and_ends_at_what_happens() -> None:
    calibration = RankCalibration()
    q = np.array([0.02, 0.01, 0.01], dtype=np.float32)
    np.testing.assert_allclose(calibration.chances(0, q), q)
    rng = np.random.default_rng(0)
    for _ in range(600):
        taken = int(rng.choice(4, p=[0.5, 0.2, 0.1, 0.2]))
        calibration.learn(0, 3, taken if taken < 3 else None)
    np.testing.assert_allclose(calibration.chances(0, q), [0.5, 0.2, 0.1], atol=0.12)
    # Rows of another certainty, and children that were not drafted, teach nothing.
    np.testing.assert_allclose(calibration.chances(RankCalibration.bin(0.9), q), q)
    assert calibration.chances(0, np.full(8, 0.01, dtype=np.float32))[3] == np.float32(0.01)


def test_a_flat_draft_that_shares_its_noise_learns_to_go_deep() -> None:
    # At this temperature a token's own probability says nothing: q alone makes a bush.
    hot = SamplingParams(temperature=4.0, seed=1)
    table = Table("tree", hot)
    first = table.propose(6, 4)
    for _ in range(60):
        table.settle(table.propose(6, 4))
    depths = [max(table.propose(6, 4).tree.depths)]
    for _ in range(20):
        draft = table.propose(6, 4)
        depths.append(max(draft.tree.depths))
        table.settle(draft)
    assert np.mean(depths) > max(first.tree.depths)
