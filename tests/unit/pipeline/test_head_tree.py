"""A head drafts trees: every branch goes on from the states of its own nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import demo_head
import numpy as np
import pytest

from edgedec import Pipeline
from edgedec.decoding.drafting._head_context import HeadContext
from edgedec.decoding.drafting._head_round import Round
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import InputError

PROMPT = "def area(width, height):\n"


@pytest.fixture
def branching() -> Iterator[Pipeline]:
    with Pipeline.open(demo_head.bundle(), drafter="head_tree", draft_length=12) as pipeline:
        yield pipeline


class Node(NamedTuple):
    """A node of a draft: the text up to the root, the tokens below it, the top logits after it."""

    text: Sequence[int]
    below: Sequence[int]
    top: Sequence[float]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The nodes that a drafter looks at below a second or later child."""
    found: list[Node] = []
    chances = HeadContext.chances

    def sees(self: HeadContext, node: int, ids: IntArray) -> FloatArray:
        assert self._round is not None
        tree = self._round.tree
        path = tree.path_to(node)
        if len(path) > 2 and tree.children(path[-2]).index(node):
            top = self._scores().top(node)
            found.append(Node(list(self._history()), tree.tokens_on(path[1:]), top))
        return chances(self, node, ids)

    monkeypatch.setattr(HeadContext, "chances", sees)
    return found


def test_a_branch_has_the_scores_of_a_chain(branching: Pipeline, nodes: list[Node]) -> None:
    branching.generate(PROMPT, max_new_tokens=48, ignore_eos=True)
    assert len(nodes) > 2
    for node in nodes[:8]:
        np.testing.assert_allclose(node.top, as_a_chain(branching, node), rtol=0, atol=2e-3)


def test_states_of_another_branch_are_noticed(
    branching: Pipeline, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    def last(self: Round, parents: Sequence[int]) -> FloatArray:
        return self._carried[[-1 for _ in parents]]

    monkeypatch.setattr(Round, "_handed_on", last)
    branching.generate(PROMPT, max_new_tokens=48, ignore_eos=True)
    far = [not np.allclose(one.top, as_a_chain(branching, one), atol=2e-3) for one in nodes]
    assert any(far)


def test_it_needs_branches() -> None:
    with pytest.raises(InputError, match=r"only chains are verified here.* use 'headed'"):
        Pipeline.open(demo_head.bundle(), drafter="head_tree", batch_invariant=True)


def as_a_chain(pipeline: Pipeline, node: Node) -> list[float]:
    """Return the top logits of a head that reads the text, then the tokens one by one."""
    drafter: Any = pipeline.engine.drafter
    head = drafter._head._head
    target, session = (model.open(len(node.text) + 16) for model in (pipeline.target, head))
    scored = target.forward(TokenTree.chain(node.text[:-1]), want=Want.TOP | Want.STATES)
    assert scored.states is not None
    session.carry(head.fuse(scored.states))
    own = TokenTree.chain(node.text[1:])
    found = session.forward(own, want=Want.TOP)
    for token in node.below:
        session.carry(found.states[-1:].copy())
        start = len(own)
        own.add(token, start - 1)
        found = session.forward(own, start, Want.TOP)
    top: list[float] = found.top_logits[-1].tolist()
    session.close(), target.close()
    return top
