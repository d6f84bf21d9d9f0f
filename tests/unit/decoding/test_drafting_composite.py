"""Several drafters as one: who is asked, and who learns what became of a round."""

from __future__ import annotations

import numpy as np
import pytest

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import DraftLimits, RoundFeedback
from edgedec.decoding.randomness import Streams
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft, TokenTree

NOTHING = Pass(0, np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), None)


class Arm:
    """Drafts some tokens, or none after some passes; keeps what it is told."""

    def __init__(self, name: str, drafts: int, passes: int = 0) -> None:
        self.name, self._drafts, self._passes = name, drafts, passes
        self.told: list[RoundFeedback] = []

    def begin(self, prompt: object, sampler: object) -> None:
        pass

    def propose(self, root: int, limits: object, go_on: object, streams: object) -> Draft:
        tree = TokenTree.chain([root, *[7] * self._drafts])
        return Draft(tree, source=self.name, passes=self._passes)

    def observe(self, feedback: RoundFeedback) -> None:
        self.told.append(feedback)

    def close(self) -> None:
        pass


def round_of(arms: list[Arm], learner: Arm | None = None, nodes: int = 4) -> Draft:
    drafter = CompositeDrafter("several", arms, learner)
    draft = drafter.propose(3, DraftLimits(nodes, nodes), lambda step: True, Streams(0))
    drafter.observe(RoundFeedback(draft, Verdict([0], 5), NOTHING, [5]))
    return draft


@pytest.mark.parametrize(
    ("drafts", "learns"), [((2, 0), [1, 1]), ((0, 2), [0, 1]), ((0, 0), [0, 1])]
)
def test_the_learner_learns_from_every_round_once(
    drafts: tuple[int, int], learns: list[int]
) -> None:
    first, learner = Arm("first", drafts[0]), Arm("learner", drafts[1])
    draft = round_of([first, learner], learner)
    assert draft.source == ("first" if drafts[0] else "learner")
    assert [len(first.told), len(learner.told)] == learns


def test_without_a_learner_only_the_one_that_drafted_is_told() -> None:
    arms = [Arm("first", 0), Arm("second", 1), Arm("third", 1)]
    assert round_of(arms).source == "second"
    assert [len(arm.told) for arm in arms] == [0, 1, 0]


def test_passes_of_an_arm_that_drafted_nothing_are_counted_and_its_root_kept() -> None:
    model, other = Arm("model", 0, passes=2), Arm("other", 1, passes=1)
    assert round_of([model, other]).passes == 3
    (told,) = model.told
    assert (told.draft.source, told.verdict.path) == ("model", [0])


def test_a_resting_round_asks_and_tells_nobody() -> None:
    arms = [Arm("first", 1), Arm("second", 1)]
    draft = round_of(arms, arms[1], nodes=0)
    assert (draft.drafted, draft.source) == (0, "several")
    assert [arm.told for arm in arms] == [[], []]
