"""Token Recycling: the template's shape, what the matrix learns, what is proposed."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from drafting_table import PROMPT, VOCAB, Table, always

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import DraftLimits, DraftStep, RoundFeedback
from edgedec.decoding.drafting.recycle import RecycleDrafter, Template
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft, TokenTree


def feedback(tree: TokenTree, best: list[list[int]]) -> RoundFeedback:
    ids = np.array(best, dtype=np.int64)
    scored = Pass(0, ids, np.zeros(ids.shape, dtype=np.float32), None)
    return RoundFeedback(Draft(tree), Verdict([0], 0), scored, [0])


def test_the_template_holds_the_best_nodes_in_order() -> None:
    template = Template(80, 6)
    assert len(template.parents) == 80
    assert max(template.depths) == 6
    assert template.values == sorted(template.values, reverse=True)
    for index, parent in enumerate(template.parents):
        assert parent <= index  # listed before, or the root
        above = template.depths[parent - 1] if parent else 0
        assert template.depths[index] == above + 1
    # Against all nodes of the full tree, enumerated.
    chance = [0.5 / (rank + 1) ** 1.5 for rank in range(8)]
    values = [1.0]
    every: list[float] = []
    for _ in range(6):
        values = heapq.nlargest(200, (v * c for v in values for c in chance))
        every += values
    np.testing.assert_allclose(template.values, heapq.nlargest(80, every))
    pairs = list(zip(template.parents, template.ranks, strict=True))
    assert len(set(pairs)) == 80
    for parent, rank in pairs:
        assert rank == 0 or (parent, rank - 1) in pairs


@pytest.mark.parametrize("most", [1, 2, 7, 80])
def test_no_more_branches_than_the_target_verifies(most: int) -> None:
    table = Table("recycle")
    drafter = RecycleDrafter(VOCAB, branches=most)
    for tokens in range(VOCAB):
        best = [(tokens + step) % VOCAB for step in range(1, 9)]
        drafter.observe(feedback(TokenTree(tokens), [best]))
    tree = drafter.propose(0, DraftLimits(80, 6), always, table.sampler.streams).tree
    free = RecycleDrafter(VOCAB)
    free._matrix = drafter._matrix
    whole = free.propose(0, DraftLimits(80, 6), always, table.sampler.streams).tree
    assert whole.leaves > 7
    assert tree.leaves == min(most, whole.leaves)
    # What is left out is left out last: the best nodes are those of the whole tree.
    paths = {tuple(whole.tokens_on(whole.path_to(node))) for node in range(len(whole))}
    assert {tuple(tree.tokens_on(tree.path_to(node))) for node in range(len(tree))} <= paths


def test_a_chain_template_has_one_child_a_node() -> None:
    template = Template(80, 6, 1)
    assert template.parents == [0, 1, 2, 3, 4, 5]


def test_the_matrix_takes_the_last_of_duplicates() -> None:
    drafter = RecycleDrafter(4)
    tree = TokenTree.chain([1, 2, 1])
    drafter.observe(feedback(tree, [[0, 1, 2], [1, 0, 3], [3, 2, 1]]))
    assert drafter._matrix[1, :3].tolist() == [3, 2, 1]
    assert drafter._matrix[2, :3].tolist() == [1, 0, 3]
    assert drafter._matrix[0].tolist() == [-1] * 8


def propose(drafter: RecycleDrafter, root: int, nodes: int, depth: int = 6) -> TokenTree:
    sampler = Sampler(SamplingParams(), 16, [root])
    limits = DraftLimits(nodes, depth)
    return drafter.propose(root, limits, always, sampler.streams).tree


def test_the_tree_reads_the_matrix() -> None:
    drafter = RecycleDrafter(16)
    words = TokenTree.chain([1, 2, 3])
    drafter.observe(feedback(words, [[2, 4, 5], [3, 1, 6], [7, 8, 9]]))
    tree = propose(drafter, 1, 80)
    for node in range(1, len(tree)):
        row = drafter._matrix[tree.tokens[tree.parents[node]]].tolist()
        assert tree.tokens[node] in row
    for node in range(len(tree)):
        children = tree.tokens_on(tree.children(node))
        row = [t for t in drafter._matrix[tree.tokens[node]].tolist() if t >= 0]
        assert children == row[: len(children)]
    assert propose(drafter, 1, 2).tokens == [1, 2, 3]
    assert len(propose(drafter, 1, 9)) == 10
    assert max(propose(drafter, 1, 80, 2).depths) == 2
    assert len(propose(drafter, 11, 80)) == 1
    assert len(propose(drafter, 1, 0)) == 1
    chain = RecycleDrafter(16, branches=1)
    chain._matrix[:] = drafter._matrix
    assert propose(chain, 1, 80).tokens == [1, 2, 3, 7]


def test_a_smaller_limit_gives_a_prefix() -> None:
    drafter = RecycleDrafter(16)
    drafter._matrix[:] = np.random.default_rng(0).permuted(
        np.tile(np.arange(16, dtype=np.int32), (16, 1)), axis=1
    )[:, :8]
    full = propose(drafter, 5, 80)
    assert full.tokens[0] == 5
    assert len(full) == 81
    for nodes in (1, 2, 5, 8, 16, 40):
        small = propose(drafter, 5, nodes)
        assert small.tokens == full.tokens[: nodes + 1]
        assert small.parents == full.parents[: nodes + 1]


def test_the_policy_is_asked_for_every_node_and_told_its_value() -> None:
    drafter = RecycleDrafter(16)
    drafter._matrix[:] = np.arange(8, dtype=np.int32)
    seen: list[tuple[int, int, float]] = []

    def five(step: DraftStep) -> bool:
        assert step.value is not None
        seen.append((step.nodes, step.depth, step.value * step.offer.confidence()))
        return step.nodes < 5

    sampler = Sampler(SamplingParams(), 16, [1])
    draft = drafter.propose(1, DraftLimits(80, 6), five, sampler.streams)
    assert draft.drafted == 5
    assert [nodes for nodes, _, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert [depth for _, depth, _ in seen[:5]] == [d - 1 for d in draft.tree.depths[1:]]
    assert [value for _, _, value in seen] == pytest.approx(Template(80, 6).values[:6])


def test_the_prompt_stands_in_for_what_is_not_known() -> None:
    drafter = RecycleDrafter(VOCAB)
    prompt = [3, 5, 3, 6, 9]
    drafter.begin(prompt, Sampler(SamplingParams(), VOCAB, prompt))
    assert drafter._matrix[3, 0] == 6
    assert drafter._matrix[5, 0] == 3
    assert (drafter._matrix[9] == -1).all()
    drafter.observe(feedback(TokenTree(3), [[1, 2]]))
    drafter.begin(prompt, Sampler(SamplingParams(), VOCAB, prompt))
    assert drafter._matrix[3, 0] == 1


def test_what_one_text_taught_serves_the_next() -> None:
    table = Table("recycle", context=1)
    rounds = []
    for prompt in (PROMPT, PROMPT, [8, *PROMPT]):
        table.begin(prompt)
        start, count = len(table.sampler.history), 0
        while len(table.sampler.history) < start + 60:
            table.settle(table.propose(8))
            count += 1
        rounds.append(count)
    assert rounds[1] < rounds[0]
    assert rounds[2] < rounds[0]


def test_a_matrix_that_learns_the_wrong_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(self: RecycleDrafter, feedback: RoundFeedback) -> None:
        for row, token in enumerate(feedback.draft.tree.tokens):
            self._matrix[token, :3] = feedback.scored.top_ids[row - 1]

    monkeypatch.setattr(RecycleDrafter, "observe", shifted)
    with pytest.raises(AssertionError):
        test_the_matrix_takes_the_last_of_duplicates()
