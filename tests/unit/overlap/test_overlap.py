"""Overlapped drafting: the sequential engine's text, whatever thinks when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kinds import each_once
from overlapping import DRAFT, SAMPLINGS, TARGET, VOCAB, Harness, Slow, in_virtual_time, plain

from edgedec.decoding.drafting.base import RoundFeedback
from edgedec.decoding.policy import CostCurve, DraftPolicy, Fixed, MeasuredCost
from edgedec.decoding.sampling import Rows, Sampler, SamplingParams
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.overlap.engine import LookaheadDrafter
from edgedec.overlap.lookahead_tree import LookaheadTree
from edgedec.testing import FakeModel

POLICIES: dict[str, Callable[[], DraftPolicy]] = {
    "fixed": lambda: Fixed(4),
    "measured": lambda: MeasuredCost(CostCurve((1, 4), (1e-3, 1.2e-3))),
}


@pytest.mark.parametrize(("sampling", "lookup"), each_once(SAMPLINGS.values(), [False, True]))
def test_the_text_is_that_of_plain_decoding(sampling: SamplingParams, lookup: bool) -> None:
    expected = plain(sampling)
    drafted = accepted = 0
    for turn, policy in enumerate(POLICIES.values()):
        for branches in (None, 1):
            for target_s, draft_s in ((1e-3, 3e-4), (3e-4, 1e-3)):
                target, draft = Slow(TARGET, target_s, turn), Slow(DRAFT, draft_s, turn)
                with Harness(
                    policy(), lookup=lookup, target=target, draft=draft, branches=branches
                ) as harness:
                    outcome, metrics = harness.run(sampling)
                    assert harness.ahead.failure is None
                assert outcome == expected
                drafted += metrics.drafted_tokens
                accepted += metrics.accepted_tokens
    assert 0 < accepted < drafted


@pytest.mark.parametrize("branches", [None, 32, 4, 1])
def test_the_draft_s_pending_tree_stays_within_bounds(branches: int | None) -> None:
    """Of nodes, and of branches where the draft's session computes no more."""
    sizes: list[int] = []
    leaves: list[int] = []
    with in_virtual_time(2e-3, branches=branches) as harness:
        honest = harness.draft.forward

        def forward(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            sizes.append(len(tree))
            leaves.append(tree.leaves)
            return honest(tree, start, want)

        harness.draft.forward = forward  # type: ignore[method-assign]
        harness.run(SAMPLINGS["hot"], max_new_tokens=200)
        assert harness.ahead.failure is None
    # With a few tokens of the text that ride along above it.
    assert 16 < max(sizes) <= 64 + 8
    assert min(4, branches or 4) <= max(leaves) <= (branches or 32)


# -- what was thought of is what comes -----------------------------------------------------------
#
# Whatever is drafted the text is the target's. So a draft that thinks about another text than it
# should shows where it would otherwise always be right: it is the target itself, and its numbers
# depend on all that it sees.

ORACLE = FakeModel(VOCAB, seed=3, sharpness=3.0)


@pytest.mark.parametrize(("sampling", "branches"), each_once(SAMPLINGS.values(), [None, 1]))
def test_a_draft_that_knows_the_target_is_never_wrong(
    sampling: SamplingParams, branches: int | None
) -> None:
    never_wrong(sampling, branches=branches)


def never_wrong(sampling: SamplingParams, *, branches: int | None = None) -> None:
    with in_virtual_time(1e-3, ORACLE, ORACLE, branches=branches) as harness:
        for prompt in ([3, 1, 4], [1, 5]):
            _, metrics = harness.run(sampling, prompt, max_new_tokens=90)
            assert harness.ahead.failure is None
            assert metrics.accepted_tokens == metrics.drafted_tokens > 5


def re_rooted_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the token that comes is what was thought of below another."""
    honest = LookaheadDrafter.observe

    def twin(self: LookaheadDrafter, feedback: RoundFeedback) -> None:
        before = self._root
        honest(self, feedback)
        ranked = before.ranked or ()
        if len(ranked) > 1 and ranked[1].ranked is not None:
            self._root.ranked = ranked[1].ranked

    monkeypatch.setattr(LookaheadDrafter, "observe", twin)


def forgets_what_was_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted anew, the tree stands one token before where it should."""
    honest = LookaheadTree._rebuild

    def twin(self: LookaheadTree) -> None:
        del self._settled[-1:]
        honest(self)

    monkeypatch.setattr(LookaheadTree, "_rebuild", twin)


def plants_below_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is computed as if it came right after the base."""
    honest = TokenTree.add
    monkeypatch.setattr(TokenTree, "add", lambda self, token, parent: honest(self, token, 0))


def takes_the_row_before(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LookaheadTree._rank

    def twin(self: LookaheadTree, node: int, rows: Rows) -> None:
        nodes = self._nodes
        self._nodes = nodes[:1] + nodes
        honest(self, node, rows)
        self._nodes = nodes

    monkeypatch.setattr(LookaheadTree, "_rank", twin)


TWINS = [re_rooted_wrongly, forgets_what_was_settled, plants_below_the_base, takes_the_row_before]


@pytest.mark.parametrize("twin", TWINS)
def test_a_draft_about_another_text_is_noticed(
    twin: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    twin(monkeypatch)
    with pytest.raises(AssertionError):
        never_wrong(SAMPLINGS["penalised"])


def test_a_draft_that_draws_with_the_target_s_sampler_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sampler, "twin", lambda self: self)
    expected = plain(SAMPLINGS["penalised"], max_new_tokens=200)
    with in_virtual_time(1e-3) as harness:
        outcome, _ = harness.run(SAMPLINGS["penalised"], max_new_tokens=200)
    assert outcome != expected
