import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from sim.metrics.statistics import (
    bootstrap_means,
    incomplete_beta,
    mean_interval,
    paired_ratio,
    percentile_interval,
    t_cdf,
    t_quantile,
)


@given(st.floats(0.5, 200), st.floats(0.5, 200), st.floats(0, 1))
def test_incomplete_beta_agrees_with_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 19, 30, 99, 1000])
@pytest.mark.parametrize("probability", [0.01, 0.3, 0.5, 0.9, 0.95, 0.975, 0.995, 0.9999])
def test_t_quantile_agrees_with_scipy(probability: float, degrees: int) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-12)
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_t_quantile_refuses_what_has_no_value(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="t_quantile needs"):
        t_quantile(probability, degrees)


def test_paired_ratio_is_the_geometric_mean_with_scipys_interval_on_logs() -> None:
    top, bottom = [2.0, 2.2, 1.9, 2.4], [1.0, 1.2, 0.8, 1.1]
    logs = np.log(np.array(top) / np.array(bottom))
    low, high = stats.t.interval(0.95, 3, loc=logs.mean(), scale=stats.sem(logs))
    ratio = paired_ratio(top, bottom, 0.95)
    assert ratio.estimate == pytest.approx(math.exp(logs.mean()), rel=1e-12)
    assert (ratio.low, ratio.high) == (pytest.approx(math.exp(low), rel=1e-9), pytest.approx(math.exp(high), rel=1e-9))


def test_one_pair_gives_no_interval_and_zero_gives_an_error() -> None:
    assert paired_ratio([3.0], [2.0], 0.95).low is None
    with pytest.raises(ValueError, match="positive finite"):
        paired_ratio([0.0, 1.0], [1.0, 1.0], 0.95)
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([], 0.95)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """400 experiments of 5 replicates: 95 % coverage, three standard errors of a binomial are 3.3 points."""
    rng = np.random.default_rng(4)
    t_hits = boot_hits = 0
    for _ in range(400):
        sample = rng.normal(1.0, 0.3, 5)
        interval = mean_interval(sample.tolist(), 0.95)
        assert interval.low is not None
        assert interval.high is not None
        t_hits += interval.low <= 1.0 <= interval.high
        means = bootstrap_means(sample[:, None], 0.95, rng.random((400, 5)))
        low, high = percentile_interval(lambda row: float(row[0]), means, 0.95)
        boot_hits += low <= 1.0 <= high
    assert abs(t_hits / 400 - 0.95) < 0.033
    assert abs(boot_hits / 400 - 0.95) < 0.045  # resampling five values adds its own error


def test_percentile_interval_without_any_value_is_nan() -> None:
    low, high = percentile_interval(lambda row: math.nan, np.ones((10, 2)), 0.95)
    assert math.isnan(low)
    assert math.isnan(high)
