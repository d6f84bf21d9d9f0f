"""DySpec's layered rule: which slots are filled, with what, and by which distribution."""

from __future__ import annotations

import numpy as np
import pytest
from drafting_table import HOT, PENALISED, PROMPT, VOCAB, Table

from edgedec.decoding.drafting import DrafterParts
from edgedec.decoding.drafting.tree import TreeDrafter
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


def test_a_limit_on_nodes_drops_the_least_likely() -> None:
    small, large = Table("tree").propose(5, 3), Table("tree").propose(20, 3)
    assert small.drafted == 5
    assert 1 < large.passes == max(large.tree.depths) == 3
    assert len(large.tree) > 6
