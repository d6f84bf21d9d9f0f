"""Token trees: which are chains, and how nodes are found."""

from __future__ import annotations

import pytest

from edgedec.decoding.tree import TokenTree


def grown(*parents: int) -> TokenTree:
    """A tree whose nodes after the root hang below these; node n carries token 10 + n."""
    tree = TokenTree(10)
    for node, parent in enumerate(parents, 1):
        assert tree.add(10 + node, parent) == node
    return tree


@pytest.mark.parametrize("parents", [(), (0,), (0, 1), (0, 1, 2, 3)])
def test_each_node_below_the_one_before_is_a_chain(parents: tuple[int, ...]) -> None:
    assert grown(*parents).is_chain


@pytest.mark.parametrize("parents", [(0, 0), (0, 0, 2), (0, 1, 0), (0, 1, 1, 3, 4), (0, 0, 1)])
def test_a_tree_that_branched_once_is_never_a_chain_again(parents: tuple[int, ...]) -> None:
    tree = grown(*parents)
    assert not tree.is_chain
    tree.add(9, len(tree) - 1)
    assert not tree.is_chain


def test_nodes_are_found_by_parent_and_token() -> None:
    tree = grown(0, 0, 1, 1, 2)
    assert [tree.children(node) for node in range(6)] == [[1, 2], [3, 4], [5], [], [], []]
    assert tree.child(0, 12) == 2
    assert tree.child(1, 14) == 4
    assert tree.child(0, 14) is None, "a grandchild"
    assert tree.depths == [0, 1, 1, 2, 2, 2]
    assert tree.path_to(5) == [0, 2, 5]
    assert tree.tokens_on([0, 2, 5]) == [10, 12, 15]


def test_a_path_begins_at_the_root_and_leaves_out_no_node() -> None:
    tree = grown(0, 0, 1, 1, 2)
    for path in ([], [0], [0, 1], [0, 1, 4], [0, 2, 5]):
        assert tree.is_path(path)
    for path in ([1], [0, 3], [0, 2, 4], [0, 0], [0, 1, 2], [0, 6], [-1], [0, -1]):
        assert not tree.is_path(path)


@pytest.mark.parametrize("parent", [-1, 3])
def test_a_parent_that_is_not_there_is_refused(parent: int) -> None:
    with pytest.raises(ValueError, match="not a node of a tree of 3"):
        grown(0, 1).add(1, parent)
