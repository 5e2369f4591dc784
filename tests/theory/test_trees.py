"""Draft trees: heap = dynamic programme, golden values of Sequoia's positional model, best sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.theory.tokens import expected_tokens
from sim.theory.trees import CostLine, best_sizes, best_tokens, best_tree, guesses_tokens, tree_row

RANKS = (0.7, 0.12, 0.05, 0.03)
GOLDEN = {1: 1.0, 2: 1.7, 4: 2.533, 8: 3.1788, 16: 3.7132, 32: 4.2395}


@st.composite
def ranks(draw):
    weights = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=5)), reverse=True)
    total = sum(weights) + draw(st.integers(0, 20)) or 1
    return tuple(weight / total for weight in weights)


@pytest.mark.parametrize(("size", "tokens"), GOLDEN.items())
def test_golden_values(size, tokens):
    assert best_tree(RANKS, size).expected_tokens == pytest.approx(tokens, abs=5e-5)
    assert best_tokens(RANKS, size)[-1] == pytest.approx(tokens, abs=5e-5)


def test_depth_limit_and_chain():
    assert best_tree(RANKS, 32, 5).expected_tokens == pytest.approx(4.0141, abs=5e-5)
    assert best_tokens(RANKS, 32, 5)[-1] == pytest.approx(4.0141, abs=5e-5)
    assert tree_row(RANKS, 32).chain_tokens_per_step == pytest.approx(3.3333, abs=5e-5)


@settings(max_examples=60)
@given(acceptance=ranks(), size=st.integers(1, 16), depth=st.one_of(st.none(), st.integers(1, 6)))
def test_heap_equals_the_dynamic_programme(acceptance, size, depth):
    assert best_tree(acceptance, size, depth).expected_tokens == pytest.approx(
        best_tokens(acceptance, size, depth)[-1], abs=1e-12
    )


@settings(max_examples=60)
@given(acceptance=ranks(), size=st.integers(1, 40), depth=st.one_of(st.none(), st.integers(1, 6)))
def test_trees_are_trees(acceptance, size, depth):
    tree = best_tree(acceptance, size, depth)
    assert tree.size <= size
    reached = {(): 1.0} | dict(zip(tree.paths, tree.reached, strict=True))
    assert len(reached) == tree.size
    for index, path in enumerate(tree.paths):
        assert path[:-1] in ((), *tree.paths[:index])
        assert path[-1] == 0 or (*path[:-1], path[-1] - 1) in tree.paths[:index]
        assert reached[path] == pytest.approx(reached[path[:-1]] * acceptance[path[-1]])
    assert tree.depth <= (depth or size)
    assert sum(tree.widths()) == tree.size - 1


def test_one_rank_is_a_chain():
    assert best_tree((0.8,), 6).expected_tokens == pytest.approx(expected_tokens(0.8, 5))


def test_refuses_chances_that_cannot_be():
    for acceptance in ((), (0.7, 0.5), (0.2, 0.3), (-0.1,)):
        with pytest.raises(ValueError):
            best_tree(acceptance, 4)
    with pytest.raises(ValueError):
        best_tree(RANKS, 0)


def test_best_size_shrinks_with_the_batch_and_is_the_best():
    cost = CostLine(5.0, 0.02, 0.3)
    found = best_sizes(RANKS, cost, (1, 4, 16, 64, 256, 4096), 64)
    assert [best.nodes for best in found] == sorted((best.nodes for best in found), reverse=True)
    assert found[-1].nodes == 1
    assert found[-1].speedup == 1.0
    trees = [best_tree(RANKS, size, depth) for size in range(2, 65) for depth in range(1, 13)]
    columns = np.array([(t.size, t.depth, t.expected_tokens) for t in trees]).T
    for best in found[:-1]:
        assert best.speedup == pytest.approx(cost.speedup(*columns, best.batch).max(), rel=1e-12)


@pytest.mark.parametrize(("guesses", "tokens"), [(1, 1.9375), (2, 2.5430), (4, 3.2624), (8, 3.9557), (15, 4.4719)])
def test_independent_guesses_golden(guesses, tokens):
    assert guesses_tokens(0.5, 4, guesses) == pytest.approx(tokens, abs=5e-5)
    assert guesses_tokens(0.5, 4, 1) == pytest.approx(expected_tokens(0.5, 4))
