"""A target, or a draft, that takes few branches: every text goes on to its end, and is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kinds import each_once

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import Fixed, MeasuredCost, calibrate
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Session
from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError
from edgedec.testing import FakeModel
from edgedec.testing.decoding import decode, request

VOCAB = 40
PROMPT = [1, 2, 3, 4, 1, 2, 3]
NAMES = ["model", "tree", "recycle", "hybrid", "adaptive", "text"]
LIMITS = [(4, None), (None, 4), (6, 4), (1, None), (None, 1)]
HOW = [(limits, measured) for limits in LIMITS for measured in (False, True)]
SAMPLED = SamplingParams(temperature=1.2, seed=3)


def pair(branches: int | None, draft_branches: int | None) -> tuple[FakeModel, FakeModel]:
    target = FakeModel(VOCAB, seed=1, context=2, sharpness=1.5)
    draft = FakeModel(VOCAB, seed=2, context=2, like=(target, 0.7), sharpness=1.5)
    target.capabilities = replace(target.capabilities, branches=branches)
    draft.capabilities = replace(draft.capabilities, branches=draft_branches)
    return target, draft


def text(
    name: str, limits: tuple[int | None, int | None], *, told: bool = True, measured: bool = False
) -> tuple[list[int], int]:
    """The text, and the most branches that a pass over the target had."""
    target, draft = pair(*limits)
    branches, draft_branches = limits if told else (None, None)
    drafter = drafting.create(
        name, DrafterParts(VOCAB, draft.open(300), branches=branches, draft_branches=draft_branches)
    )
    session, widest = target.open(300), 0
    forward = session.forward

    def noted(tree: TokenTree, *args: object, **more: object) -> object:
        nonlocal widest
        widest = max(widest, tree.leaves)
        return forward(tree, *args, **more)  # type: ignore[arg-type]

    policy = MeasuredCost(calibrate(session), 1e-4) if measured else Fixed(60, depth=5)
    session.forward = noted  # type: ignore[method-assign, assignment]
    engine = Engine(session, drafter, policy, acceptance.rule())
    return decode(engine, request(SAMPLED, VOCAB, PROMPT, max_new_tokens=80)).tokens, widest


@pytest.mark.parametrize(("name", "how"), each_once(NAMES, HOW, 12))
def test_no_text_ends_in_the_middle(
    name: str, how: tuple[tuple[int | None, int | None], bool]
) -> None:
    limits, measured = how
    if name == "tree" and 1 in limits:
        pytest.skip("refused when it is made")
    plain, _ = text("none", (None, None))
    found, widest = text(name, limits, measured=measured)
    assert found == plain
    assert widest <= (limits[0] or VOCAB)


@pytest.mark.parametrize("limits", [(4, None), (None, 4)])
def test_who_is_not_told_of_the_limit_runs_into_it(limits: tuple[int | None, int | None]) -> None:
    """Otherwise the drafts above would be too narrow to say anything."""
    with pytest.raises(StateError, match="expected at most 4 branches"):
        text("tree", limits, told=False)
    assert text("recycle", (None, None))[1] > 6


def test_a_tree_needs_branches_of_both() -> None:
    session: Session = pair(None, 1)[1].open(10)
    for limits in ((1, None), (None, 1), (3, 1)):
        assert DrafterParts(VOCAB, session, limits[0], draft_branches=limits[1]).both_branches == 1
    assert DrafterParts(VOCAB, session, 5, draft_branches=3).both_branches == 3
    assert DrafterParts(VOCAB).both_branches is None
