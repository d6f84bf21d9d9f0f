"""The best tree, against every tree there is."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.planning.estimate import Forecast
from edgedec.planning.sizes import Trees, best_tree
from edgedec.records.place import Place
from edgedec.records.plan import Plan
from edgedec.records.workload import Workload
from edgedec.replay.costs import PassCost
from tests.profiles import profile
from tests.simulated import measured

Layers = tuple[int, ...]
CHANCES = (0.6, 0.2, 0.08)
# llama.cpp, Q4_0, two threads: 3 rows take longer than 4, and 6 as long as 8.
DIPPING = {1: 8.0, 2: 14.0, 3: 19.8, 4: 14.3, 5: 20.6, 6: 26.2, 7: 26.0, 8: 25.6, 9: 30.0}


def every_tree(nodes: int, chances: tuple[float, ...]) -> Iterator[tuple[float, Layers]]:
    """Of so many nodes, the root counted: its expected tokens and its nodes by depth.

    A node's children have the first ranks, so a tree is a list of subtrees at each node.
    """
    if nodes == 1:
        yield 1.0, (1,)
        return
    for count in range(1, min(len(chances), nodes - 1) + 1):
        for sizes in compositions(nodes - 1, count):
            below = [list(every_tree(size, chances)) for size in sizes]
            for subtrees in itertools.product(*below):
                tokens = 1 + sum(p * t for p, (t, _) in zip(chances, subtrees, strict=False))
                layers = [layers for _, layers in subtrees]
                summed = itertools.zip_longest(*layers, fillvalue=0)
                yield tokens, (1, *map(sum, summed))


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield first, *rest


def best_of_all(
    chances: tuple[float, ...], most: int, deepest: int, cost: Callable[[int, int], float]
) -> float:
    """Most tokens a second over all trees, by a cost of rows and layers."""
    return max(
        tokens / cost(nodes, len(layers) - 1)
        for nodes in range(2, most + 2)
        for tokens, layers in every_tree(nodes, chances)
        if len(layers) - 1 <= deepest
    )


def probabilities(count: int) -> st.SearchStrategy[tuple[float, ...]]:
    """What is left over is the chance that no child is right."""

    def scaled(parts: list[float]) -> tuple[float, ...]:
        return tuple(part / max(sum(parts), 1e-9) for part in parts[:-1])

    return st.lists(st.floats(0, 1), min_size=count + 1, max_size=count + 1).map(scaled)


class WithoutDepth(Trees):
    """The broken twin: a child's subtree may be as deep as its parent's."""

    def expected(self, nodes: int, depth: int) -> float:
        return super().expected(nodes, max(depth, nodes - 1) if nodes > 1 else depth)


class SameChances(Trees):
    """The broken twin: every child is as likely as the first."""

    def __init__(self, chances, most, deepest):
        super().__init__([chances[0]] * len(chances), most, deepest)


def differs_from_all_trees(table: type[Trees], chances: tuple[float, ...]) -> bool:
    trees = table(chances, 6, 5)
    for nodes, depth in itertools.product(range(2, 7), range(1, 6)):
        fitting = [t for t, layers in every_tree(nodes, chances) if len(layers) - 1 <= depth]
        found = trees.expected(nodes, depth)
        if not fitting:
            if found >= 1:
                return True
        elif abs(found - max(fitting)) > 1e-9:
            return True
    return False


@given(probabilities(3))
def test_the_table_is_the_best_of_every_tree(chances):
    assert not differs_from_all_trees(Trees, chances)


@pytest.mark.parametrize("broken", [WithoutDepth, SameChances])
def test_a_broken_table_is_found_out(broken):
    assert differs_from_all_trees(broken, CHANCES)
    assert not differs_from_all_trees(Trees, CHANCES)


@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (2, 1), (4, 1), (6, 2), (6, 5), (12, 4)])
def test_layers_are_of_the_tree_whose_tokens_are_expected(nodes, depth):
    trees = Trees(CHANCES, 12, 5)
    layers = trees.layers(nodes, depth)
    assert layers[0] == 1
    assert sum(layers) == nodes
    assert len(layers) - 1 <= depth
    if nodes <= 6:
        reached = [t for t, found in every_tree(nodes, CHANCES) if found == tuple(layers)]
        assert max(reached) == pytest.approx(trees.expected(nodes, depth))


@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (2, 1), (4, 1), (6, 2), (6, 5), (12, 4)])
def test_leaves_are_those_of_the_same_tree(nodes, depth):
    trees = Trees(CHANCES, 12, 5)
    layers = trees.layers(nodes, depth)
    # Each layer's nodes have children or not; those of the last have none.
    assert layers[-1] <= trees.leaves(nodes, depth) <= max(1, nodes - len(layers) + 1)
    assert Trees((0.7,), 9, 8).leaves(9, 8) == 1
    assert Trees(CHANCES, 4, 1).leaves(4, 1) == 3


@pytest.mark.parametrize("branches", [1, 2, 3, None])
def test_the_best_tree_has_no_more_leaves_than_are_verified(branches):
    trees = Trees((0.4, 0.3, 0.2), 12, 4)
    found = best_tree(trees, lambda rows: 10.0, lambda rows: 1.0, branches=branches)
    leaves = trees.leaves(found.nodes + 1, found.depth)
    assert leaves <= (branches or 99)
    assert leaves > 3 or branches is not None


def test_a_tree_that_cannot_be_is_worth_nothing():
    assert Trees((0.9,), 9, 3).expected(9, 3) < 1


@given(
    probabilities(3),
    st.lists(st.floats(0.5, 5), min_size=6, max_size=6),
    st.floats(0.01, 2),
    st.floats(0, 1),
)
def test_the_best_tree_is_the_best_of_all_sizes_on_any_curve(chances, curve, draft_s, overhead_s):
    found = best_tree(
        Trees(chances, 6, 4),
        lambda rows: curve[rows - 1],
        lambda rows: draft_s,
        overhead_s=overhead_s,
    )
    best = best_of_all(
        chances, 5, 4, lambda nodes, depth: curve[nodes - 1] + depth * draft_s + overhead_s
    )
    assert found.rate == pytest.approx(best)
    assert found.depth <= found.nodes <= 5


def climbing(trees: Trees, target: Callable[[int], float], draft_s: float) -> int:
    """The broken twin: stops where one token more does not pay."""
    rates = [
        trees.expected(rows, rows - 1) / (target(rows) + (rows - 1) * draft_s)
        for rows in range(2, 10)
    ]
    worse = (place for place in range(1, len(rates)) if rates[place] < rates[place - 1])
    return next(worse, len(rates))


def test_a_dip_of_the_curve_is_seen_behind_a_dearer_width():
    chains = Trees((0.7,), 9, 8)
    found = best_tree(chains, DIPPING.__getitem__, lambda rows: 0.2)
    rates = {n: sum(0.7**i for i in range(n + 1)) / (DIPPING[n + 1] + n * 0.2) for n in range(1, 9)}
    assert found.nodes == found.depth == max(rates, key=lambda n: rates[n]) == 3
    assert found.rate == pytest.approx(rates[3])
    assert climbing(chains, DIPPING.__getitem__, 0.2) != 3, "the twin must be caught"


def test_a_tree_uses_the_dip_too():
    found = best_tree(Trees(CHANCES, 9, 4), DIPPING.__getitem__, lambda rows: 0.5)
    assert found.nodes + 1 == 4
    smooth = {rows: 8.0 + 6 * (rows - 1) for rows in DIPPING}
    assert best_tree(Trees(CHANCES, 9, 4), smooth.__getitem__, lambda rows: 0.5).nodes != 3


def test_the_draft_pays_for_the_rows_of_each_layer():
    def cost(rows: int) -> float:
        return 1.0 if rows == 1 else 100.0

    trees = Trees((0.5, 0.45), 7, 3)
    wide = best_tree(trees, lambda rows: 10.0, lambda rows: 1.0)
    narrow = best_tree(trees, lambda rows: 10.0, cost)
    assert wide.depth > 1
    assert narrow.depth == 1, "a second layer needs a pass over two rows"


@pytest.mark.parametrize(
    ("rows", "widths", "expected"),
    [
        (3, None, [3]),
        (1, (1, 4, 8), [1]),
        (2, (1, 4, 8), [4]),
        (8, (1, 4, 8), [8]),
        (9, (1, 4, 8), [8, 1]),
        (27, (1, 4, 8), [8, 8, 8, 4]),
    ],
)
def test_rows_are_padded_to_the_next_graph_and_past_the_widest_take_more_passes(
    rows, widths, expected
):
    assert measured(row_widths=widths).graph_widths(rows) == expected


@pytest.mark.parametrize("widths", [None, (1, 4, 8), (2,)])
def test_planning_and_replay_agree_on_what_any_number_of_rows_costs(widths):
    model = measured(row_widths=widths)
    forecast = Forecast(profile(model, measured("draft")), Workload(100, 100))
    planned, replayed = forecast._target(Plan(model.place)), PassCost(model)
    for rows in range(1, 40):
        seconds = replayed.seconds(rows, forecast.workload.middle)
        assert planned(rows) == pytest.approx(seconds)


def test_static_widths_cost_what_they_compute():
    model = measured(row_widths=(1, 4, 8), place=Place("onnx", device="npu"))

    def seconds(rows: int) -> float:
        return model.seconds(rows, 100)

    assert seconds(2) == seconds(3) == seconds(4) == pytest.approx(11e-3)
    assert seconds(1) == pytest.approx(8e-3)
    assert seconds(9) == pytest.approx(seconds(8) + seconds(1))
    # Any length up to 3 costs the same, so the longest is best.
    assert best_tree(Trees((0.5,), 9, 8), seconds, lambda rows: 0.0).nodes == 3
