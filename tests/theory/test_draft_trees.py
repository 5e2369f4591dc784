"""Token trees: the best ones against published values and against a dynamic programme, and what every tree must be."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.theory.draft_trees import DraftTree, FixedShape, GrownShape, best_tree, chain, tree_of_widths

P = (0.7, 0.12, 0.05, 0.03)


def rates(p, depth: int) -> np.ndarray:
    return np.tile(np.array(p), (depth, 1))


def tokens(tree: DraftTree, table: np.ndarray) -> float:
    return float(1 + tree.survival(table).sum())


@pytest.mark.parametrize(
    ("nodes_and_root", "expected"), [(2, 1.7), (4, 2.533), (8, 3.1788), (16, 3.7132), (32, 4.2395)]
)
def test_best_trees_of_sequoias_example(nodes_and_root: int, expected: float) -> None:
    """Sequoia's optimum for p = (.7, .12, .05, .03); the root is one of the nodes."""
    table = rates(P, 40)
    assert tokens(best_tree(table, nodes_and_root - 1), table) == pytest.approx(expected, abs=5e-5)


def test_a_chain_and_a_shallow_tree_are_worse() -> None:
    assert tokens(chain(31), rates(P, 31)) == pytest.approx(3.3333, abs=5e-5)
    assert tokens(best_tree(rates(P, 5), 31), rates(P, 5)) == pytest.approx(4.0141, abs=5e-5)


def by_dynamic_programme(p: tuple[float, ...], nodes_and_root: int, depth: int) -> float:
    """Sequoia's recursion: the most tokens of a tree with so many nodes, at most so deep, by children tried in turn."""

    @cache
    def tree(nodes: int, deep: int) -> float:
        return 1.0 + children(nodes - 1, 0, deep - 1) if nodes else 0.0

    @cache
    def children(nodes: int, rank: int, deep: int) -> float:
        if nodes == 0 or deep < 0 or rank == len(p):
            return 0.0
        return max(
            (p[rank] * tree(mine, deep) if mine else 0.0) + children(nodes - mine, rank + 1, deep)
            for mine in range(nodes + 1)
        )

    return tree(nodes_and_root, depth)


@given(st.lists(st.floats(0.01, 0.5), min_size=1, max_size=4), st.integers(1, 12), st.integers(2, 6))
def test_the_heap_finds_what_the_dynamic_programme_does(weights, num_nodes: int, depth: int) -> None:
    p = tuple(sorted((w / max(1.0, sum(weights)) for w in weights), reverse=True))
    room = sum(len(p) ** level for level in range(1, depth + 1))
    num_nodes = min(num_nodes, room)
    table = rates(p, depth)
    assert tokens(best_tree(table, num_nodes), table) == pytest.approx(
        by_dynamic_programme(p, num_nodes + 1, depth), abs=1e-12
    )


@given(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 5), st.integers(1, 4))
def test_every_beginning_of_a_tree_is_a_tree_that_emits_no_more(p, num_nodes: int, depth: int, top_k: int) -> None:
    shape = GrownShape(num_nodes, depth, top_k)
    shape = GrownShape(min(num_nodes, shape.num_seen), depth, top_k)
    table = rates(sorted(p, reverse=True), depth)
    whole = shape.tree(table)
    assert len(whole.nodes) == shape.num_nodes
    emitted = [tokens(whole.first(n), table) for n in range(len(whole.nodes) + 1)]
    assert emitted[0] == 1.0
    assert all(a <= b for a, b in pairwise(emitted))
    assert all(whole.first(n).depth <= depth for n in range(len(whole.nodes)))


def test_a_wide_enough_beam_finds_the_best_tree() -> None:
    table = rates(P, 8)
    grown = GrownShape(31, 8, 8).tree(table)
    assert tokens(grown, table) == pytest.approx(tokens(best_tree(table, 31), table), rel=1e-12)


def test_a_narrow_beam_keeps_to_its_nodes() -> None:
    tree = GrownShape(7, 3, 2).tree(rates((0.4, 0.39), 3))
    assert tree.widths[0] <= 2
    assert max(tree.expanded) <= 2
    assert {node[-1] for node in tree.nodes} <= {0, 1}


def test_passes_of_the_drafter() -> None:
    assert FixedShape(tree_of_widths((4, 2, 1))).pass_widths(20) == (4, 8)
    assert FixedShape(chain(5)).pass_widths(5) == (1, 1, 1, 1)
    assert FixedShape(chain(5)).pass_widths(2) == (1,)
    assert GrownShape(59, 8, 10).pass_widths(59) == (10,) * 7


def test_widths() -> None:
    tree = tree_of_widths((2, 3))
    assert tree.widths == (2, 6)
    assert tree.nodes[:3] == ((0,), (1,), (0, 0))


@pytest.mark.parametrize(
    "nodes", [((0, 0),), ((0,), (0,)), ((0, 0), (0,)), ((),), ((-1,),)], ids=["orphan", "twice", "late", "root", "rank"]
)
def test_what_is_no_tree_is_refused(nodes) -> None:
    with pytest.raises(ValueError, match="node"):
        DraftTree(nodes)


def test_sizes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="hold 6 nodes, not 7"):
        best_tree(rates((0.5, 0.3), 2), 7)
    with pytest.raises(ValueError, match="hold 6 nodes, not 7"):
        GrownShape(7, 2, 2).tree(rates((0.5, 0.3), 2))
    with pytest.raises(ValueError, match="1,000"):
        tree_of_widths((40, 40))


def test_ranks_beyond_the_table_are_never_taken() -> None:
    assert tree_of_widths((5, 1)).survival(rates(P, 1)).tolist() == pytest.approx([0.9, 0.0])
