"""K by batch size as arithmetic: ties, ranges and widening against definitions written down again here."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.experiment.k_table import KRange, Rates, best_ks, closed_at, corrected, k_at, ranges_of, widened


def rates(table: list[list[float]], ks: list[int] | None = None) -> Rates:
    rate = np.array(table, np.float64)
    batches = np.arange(1, len(rate) + 1)
    return Rates(batches, np.array(ks or range(rate.shape[1])), rate, np.ones(len(rate)))


random_rates = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.floats(0.1, 10), min_size=width, max_size=width), min_size=1, max_size=30)
).map(rates)  # fmt: skip


@given(random_rates, st.sampled_from([0.0, 0.01, 0.1]))
def test_the_smallest_k_within_the_tie_of_the_best(table: Rates, tie: float) -> None:
    for row, k in zip(table.rate, best_ks(table, tie).tolist(), strict=True):
        assert row[k] >= (1 - tie) * max(row)
        assert all(row[smaller] < (1 - tie) * max(row) for smaller in range(k))


@given(random_rates, st.integers(1, 10))
def test_ranges_cover_every_batch_once_and_are_wide_enough(table: Rates, least: int) -> None:
    ranges = ranges_of(widened(table, best_ks(table, 0.0), least), table.batches)
    assert [batch for one in ranges for batch in range(one.first, one.last + 1)] == table.batches.tolist()
    assert all(a.k != b.k for a, b in itertools.pairwise(ranges))
    if len(ranges) > 1:
        assert min(one.last - one.first + 1 for one in ranges) >= least


def test_a_narrow_range_joins_the_neighbour_that_loses_least() -> None:
    # K = 2 is best at batch 3 alone; there K = 1 loses 10 %, K = 0 half.
    table = rates([[1, 3, 2], [1, 3, 2], [1.5, 2.7, 3], [3, 2, 1], [3, 2, 1]])
    assert ranges_of(best_ks(table, 0.0), table.batches) == (KRange(1, 2, 1), KRange(3, 3, 2), KRange(4, 5, 0))
    assert ranges_of(widened(table, best_ks(table, 0.0), 2), table.batches) == (KRange(1, 3, 1), KRange(4, 5, 0))


def test_simulations_move_the_batches_next_to_them_only() -> None:
    batches = np.arange(1, 65)
    ks = np.where(batches <= 20, 3, 1)
    moved = corrected(ks, batches, [(1, 3), (8, 2), (64, 1)])
    assert ranges_of(moved, batches) == (KRange(1, 2, 3), KRange(3, 22, 2), KRange(23, 64, 1))
    assert (corrected(ks, batches, [(1, 3), (64, 1)]) == ks).all()
    assert (corrected(ks, batches, []) == ks).all()


def test_the_last_range_ends_where_the_engine_does_and_has_no_end() -> None:
    ranges = closed_at((KRange(1, 8, 2), KRange(9, 20, 1)), 256)
    assert ranges[-1] == KRange(9, 256, 1)
    assert [k_at(ranges, batch) for batch in (1, 8, 9, 256, 999)] == [2, 2, 1, 1, 1]


@pytest.mark.parametrize("tie", [0.0, 0.5])
def test_one_k_is_one_range(tie: float) -> None:
    table = rates([[2.0], [3.0]], [4])
    assert ranges_of(widened(table, best_ks(table, tie), 9), table.batches) == (KRange(1, 2, 4),)
