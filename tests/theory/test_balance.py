"""The busiest of several groups: closed forms against samples, limits and order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.theory.balance import busiest_hits, busiest_total, largest_normal

SAMPLES = 20_000


def test_moments_of_the_largest_normal():
    """Known values: 0 and 1; 1/sqrt(pi) and 1; 1.4236 for eight (tables of order statistics)."""
    assert largest_normal(1) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert largest_normal(2) == pytest.approx((np.pi**-0.5, 1.0), abs=1e-9)
    assert largest_normal(8)[0] == pytest.approx(1.42360, abs=1e-5)


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize(("size", "probability"), [(2, 0.4), (16, 0.05), (16, 0.9), (64, 0.3)])
def test_busiest_hits_are_exact_for_independent_groups(groups, size, probability):
    rng = np.random.default_rng(7)
    largest = rng.binomial(size, probability, (SAMPLES, groups)).max(axis=1)
    tolerance = 4 * largest.std() / SAMPLES**0.5
    assert busiest_hits(groups, size, probability) == pytest.approx(largest.mean(), abs=tolerance)


@given(st.integers(1, 16), st.integers(1, 64), st.floats(0, 1), st.floats(0, 1))
def test_hits_rise_with_the_probability_between_the_mean_and_everything(groups, size, p, q):
    low, high = sorted((p, q))
    assert busiest_hits(groups, size, low) <= busiest_hits(groups, size, high) + 1e-9
    assert size * low - 1e-9 <= busiest_hits(groups, size, low) <= size + 1e-9
    assert busiest_hits(1, size, p) == pytest.approx(size * p, abs=1e-9)


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_busiest_total_of_skewed_draws(groups):
    """Sums of 16 exponentials (skewness 0.5): Cornish-Fisher of first order is good to 1 % of the spread."""
    rng = np.random.default_rng(7)
    largest = rng.gamma(16.0, 1.0, (SAMPLES, groups)).max(axis=1)
    found = busiest_total(groups, 16, 1.0, 1.0, 2.0)
    assert found == pytest.approx(largest.mean(), abs=0.01 * 4.0 + 4 * largest.std() / SAMPLES**0.5)
    assert busiest_total(1, 16, 1.0, 1.0, 2.0) == 16.0
